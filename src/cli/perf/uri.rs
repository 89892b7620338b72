//! AMQP URIs: `amqp://user:password@host:port/vhost`.

use std::str::FromStr;

/// Where a client connects, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uri {
    pub(crate) user: String,
    pub(crate) password: String,
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) vhost: String,
}

impl FromStr for Uri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| format!("'{text}' is not an AMQP URI: {why}");
        let rest =
            text.strip_prefix("amqp://").ok_or_else(|| refuse("it does not begin with amqp://"))?;
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (rest, None),
        };
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (credentials, place),
            None => ("guest:guest", authority),
        };
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        let (host, port) = split_port(place).ok_or_else(|| refuse("its port is not a number"))?;
        let decode = |part: &str| {
            decoded(part).ok_or_else(|| refuse("a % is not followed by two hexadecimal digits"))
        };
        let vhost = match path {
            // An empty path is the default virtual host; most clients take it so.
            None | Some("") => "/".to_owned(),
            Some(path) => decode(path)?,
        };
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        Ok(Self {
            user: decode(user)?,
            password: decode(password)?,
            host: decode(host)?,
            port,
            vhost,
        })
    }
}

fn split_port(place: &str) -> Option<(&str, u16)> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            None if rest.is_empty() => Some((host, 5672)),
            None => None,
            Some(port) => Some((host, port.parse().ok()?)),
        };
    }
    match place.split_once(':') {
        None => Some((place, 5672)),
        Some((host, port)) => Some((host, port.parse().ok()?)),
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        if octet != b'%' {
            octets.push(octet);
            continue;
        }
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        octets.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(octets).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn parts(text: &str) -> (String, String, String, u16, String) {
        let uri: Uri = text.parse().unwrap();
        (uri.user, uri.password, uri.host, uri.port, uri.vhost)
    }

    #[test]
    fn every_part_may_be_left_out() {
        let own = |a: &str, b: &str, c: &str, port, e: &str| {
            (a.to_owned(), b.to_owned(), c.to_owned(), port, e.to_owned())
        };
        assert_eq!(parts("amqp://"), own("guest", "guest", "127.0.0.1", 5672, "/"));
        assert_eq!(parts("amqp://h:1/"), own("guest", "guest", "h", 1, "/"));
        assert_eq!(parts("amqp://u%40x:p%2Fq@[::1]:7/%2Fv"), own("u@x", "p/q", "::1", 7, "/v"));
        assert_eq!(parts("amqp://u@h"), own("u", "", "h", 5672, "/"));
    }

    #[test]
    fn what_is_no_uri_is_refused() {
        for text in ["h:1", "amqp://h:x", "amqp://h/%2", "amqp://[::1]x", "amqp://h/%zz"] {
            assert!(text.parse::<Uri>().is_err(), "{text}");
        }
    }
}
