//! AMQP URIs on the command line: `amqp://user:password@host:port/vhost`. No error message contains
//! the URI, since it contains a password.

use amq_protocol::uri::AMQPUri;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};
use std::ffi::OsStr;

const SCHEME: &str = "amqp://";

/// Parses a flag's URI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UriParser;

impl TypedValueParser for UriParser {
    type Value = AMQPUri;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<AMQPUri, Error> {
        parse(&value.to_string_lossy()).map_err(|why| {
            let flag = argument.map(Arg::to_string).unwrap_or_default();
            // clap's own message for a refused value contains the value.
            let text = format!("invalid AMQP URI for '{flag}': {why}\n");
            Error::raw(ErrorKind::ValueValidation, text).with_cmd(command)
        })
    }
}

/// Defaults for missing or empty parts are guest, guest, localhost, 5672 and /.
fn parse(text: &str) -> Result<AMQPUri, String> {
    let rest =
        text.strip_prefix(SCHEME).ok_or_else(|| format!("it does not begin with {SCHEME}"))?;
    if rest.contains(['?', '#']) {
        let text = "it has parameters, which are not supported; a ? or # is written %3F or %23";
        return Err(text.to_owned());
    }
    let is_escape = |digits: &str| {
        let digits = digits.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !rest.split('%').skip(1).all(is_escape) {
        return Err("a % is not followed by two hexadecimal digits".to_owned());
    }
    let mut uri: AMQPUri = text.parse()?;
    if let Some(address) = ipv6(rest) {
        address.clone_into(&mut uri.authority.host);
    }
    if uri.vhost.is_empty() {
        // Most clients interpret an empty path as the default virtual host.
        "/".clone_into(&mut uri.vhost);
    }
    Ok(uri)
}

/// The IPv6 address in brackets, which amq-protocol does not parse as a host: it would connect to
/// localhost.
fn ipv6(rest: &str) -> Option<&str> {
    let authority = rest.split('/').next()?;
    let place = authority.rsplit('@').next()?;
    Some(place.strip_prefix('[')?.split_once(']')?.0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::cli::perf::Options;
    use clap::Parser;

    fn parts(text: &str) -> (String, String, String, u16, String) {
        let AMQPUri { authority, vhost, .. } = parse(text).unwrap();
        let user = authority.userinfo;
        (user.username, user.password, authority.host, authority.port, vhost)
    }

    #[test]
    fn every_part_may_be_left_out() {
        let own = |a: &str, b: &str, c: &str, port, e: &str| {
            (a.to_owned(), b.to_owned(), c.to_owned(), port, e.to_owned())
        };
        assert_eq!(parts("amqp://"), own("guest", "guest", "localhost", 5672, "/"));
        assert_eq!(parts("amqp://h:1/"), own("guest", "guest", "h", 1, "/"));
        assert_eq!(parts("amqp://127.0.0.1"), own("guest", "guest", "127.0.0.1", 5672, "/"));
        assert_eq!(parts("amqp://u%40x:p%2Fq@[::1]:7/%2Fv"), own("u@x", "p/q", "::1", 7, "/v"));
        assert_eq!(parts("amqp://u@h"), own("u", "guest", "h", 5672, "/"));
    }

    #[test]
    fn what_is_no_uri_is_refused_with_a_reason_and_without_the_password() {
        for (uri, reason) in [
            ("h:1", "does not begin with amqp://"),
            ("amqp:u:secret@h", "does not begin with amqp://"),
            ("amqps://u:secret@h", "does not begin with amqp://"),
            ("amqp://u:secret@h:x", "port"),
            ("amqp://u:secret@:5672", "host"),
            ("amqp://u:secret@[::g]", "IPv6"),
            ("amqp://u:secret@[::1]x", "IPv6"),
            ("amqp://u:secret@h/%2", "%"),
            ("amqp://u:secret@h/%zz", "%"),
            ("amqp://u:secret@h/%ff", "utf-8"),
            ("amqp://u:secret@h/v?heartbeat=1", "parameters"),
            ("amqp://u:secret#@h", "%23"),
        ] {
            let said = Options::try_parse_from(["perf", "--uri", uri]).unwrap_err().to_string();
            assert!(said.contains(reason) && said.contains("--uri"), "{uri}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
