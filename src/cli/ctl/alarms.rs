//! `set_vm_memory_high_watermark` and `set_disk_free_limit`: set the threshold of an alarm of one
//! node, until the node is started again (ALM-01).

use super::Console;
use super::connect::{self, Target, call_failure};
use super::exit::{Exit, Failure};
use super::options::{Invocation, refusal};
use quorate_management::wire::{self, alarm_request::BeginsAt};
use quorate_rpc::Connector;

/// The resource of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Memory,
    Disk,
}

/// Units of rabbitmqctl, and those of Quorate.
const UNITS: [(&str, u64); 12] = [
    ("", 1),
    ("k", 1 << 10),
    ("kiB", 1 << 10),
    ("KiB", 1 << 10),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// Why the arguments are invalid.
#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    TooFew,
    TooMany,
    /// No further reason is printed.
    Bad,
    Because(&'static str),
}

/// The threshold that the arguments give.
fn amount(resource: Resource, words: &[&str]) -> Result<BeginsAt, Wrong> {
    match (resource, words) {
        (_, []) | (Resource::Memory, ["absolute"]) | (Resource::Disk, ["mem_relative"]) => {
            Err(Wrong::TooFew)
        }
        (Resource::Memory, ["absolute", size]) => match bytes(size) {
            Ok(0) => Err(Wrong::Because("The threshold should be above 0.")),
            Ok(bytes) => Ok(BeginsAt::Bytes(bytes)),
            Err(wrong) => Err(wrong),
        },
        (Resource::Memory, [part]) => match fraction(part)? {
            part if part <= 1.0 => Ok(BeginsAt::OfMemory(part)),
            _ => Err(Wrong::Because("The threshold should be a fraction between 0.0 and 1.0")),
        },
        (Resource::Disk, ["mem_relative", part]) => fraction(part).map(BeginsAt::OfMemory),
        (Resource::Disk, [size]) => bytes(size).map(BeginsAt::Bytes).map_err(|_| Wrong::Bad),
        (Resource::Memory | Resource::Disk, _) => Err(Wrong::TooMany),
    }
}

/// A whole number with a unit or without one.
fn bytes(text: &str) -> Result<u64, Wrong> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let Some(factor) = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)
    else {
        return Err(match unit.strip_prefix('.') {
            _ if number.is_empty() => Wrong::Bad,
            Some(rest) if rest.starts_with(|letter: char| letter.is_ascii_digit()) => {
                Wrong::Because("The threshold should be an integer.")
            }
            Some(_) | None => Wrong::Because("Invalid units."),
        });
    };
    let number = number.parse::<u64>().ok();
    number.and_then(|number| number.checked_mul(factor)).ok_or(Wrong::Bad)
}

fn fraction(text: &str) -> Result<f64, Wrong> {
    // Excludes words such as `inf` and `nan`.
    let begins = text.starts_with(|letter: char| letter.is_ascii_digit());
    match text.parse::<f64>() {
        Ok(number) if begins && number.is_finite() => Ok(number),
        Ok(_) | Err(_) => Err(Wrong::Bad),
    }
}

/// The threshold that the command line gives.
///
/// # Errors
/// The arguments are invalid; the message is rabbitmqctl's.
pub(super) fn read(
    resource: Resource,
    invocation: &Invocation,
    line: &[String],
    program: &str,
) -> Result<BeginsAt, Failure> {
    let words: Vec<&str> = invocation.arguments.iter().map(String::as_str).collect();
    amount(resource, &words).map_err(|wrong| {
        let (exit, why) = match wrong {
            Wrong::TooFew => (Exit::Usage, "not enough arguments.".to_owned()),
            Wrong::TooMany => (Exit::Usage, "too many arguments.".to_owned()),
            Wrong::Bad => (Exit::Data, "Bad argument.".to_owned()),
            Wrong::Because(why) => (Exit::Data, format!("Bad argument: {why}")),
        };
        Failure { exit, ..refusal(&why, line, invocation.manual, program) }
    })
}

fn banner(resource: Resource, invocation: &Invocation, target: &Target) -> String {
    let node = &target.text;
    let last = invocation.arguments.last().map_or("", String::as_str);
    let absolute = invocation.arguments.len() > 1;
    match (resource, absolute) {
        (Resource::Memory, true) => {
            format!("Setting memory threshold on {node} to {last} bytes ...\n")
        }
        (Resource::Memory, false) => format!("Setting memory threshold on {node} to {last} ...\n"),
        (Resource::Disk, true) => {
            format!("Setting disk free limit on {node} to {last} times the total RAM ...\n")
        }
        (Resource::Disk, false) => {
            format!("Setting disk free limit on {node} to {last} bytes ...\n")
        }
    }
}

/// Sets the threshold on the node that the command is connected to.
pub(super) async fn set(
    resource: Resource,
    begins_at: Option<BeginsAt>,
    invocation: &Invocation,
    (target, connector): (&Target, &Connector),
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    if invocation.options.banners() {
        console.say(&banner(resource, invocation, target));
    }
    let mut client = connect::connect(target, connector).await?.client;
    let request = wire::AlarmRequest { caller: wire::caller(), begins_at };
    let reply = match resource {
        Resource::Memory => client.set_memory_high_watermark(request).await,
        Resource::Disk => client.set_disk_free_limit(request).await,
    };
    reply.map(drop).map_err(|status| call_failure(&status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Resource::{Disk, Memory};

    #[test]
    fn sizes_have_rabbitmqctls_units() {
        let units = [("1", 1), ("2k", 2048), ("2kiB", 2048), ("3kB", 3000), ("1M", 1 << 20)];
        let more = [("1MiB", 1 << 20), ("1MB", 1_000_000), ("2G", 2 << 30), ("2GiB", 2 << 30)];
        for (text, wanted) in units.into_iter().chain(more).chain([("2GB", 2_000_000_000)]) {
            assert_eq!(amount(Memory, &["absolute", text]), Ok(BeginsAt::Bytes(wanted)), "{text}");
            assert_eq!(amount(Disk, &[text]), Ok(BeginsAt::Bytes(wanted)), "{text}");
        }
    }

    #[test]
    fn a_fraction_of_memory_is_at_most_all_of_it() {
        assert_eq!(amount(Memory, &["0.4"]), Ok(BeginsAt::OfMemory(0.4)));
        assert_eq!(amount(Memory, &["0"]), Ok(BeginsAt::OfMemory(0.0)));
        assert_eq!(amount(Memory, &["1"]), Ok(BeginsAt::OfMemory(1.0)));
        assert_eq!(amount(Disk, &["mem_relative", "1.5"]), Ok(BeginsAt::OfMemory(1.5)));
        let out_of_range = Wrong::Because("The threshold should be a fraction between 0.0 and 1.0");
        assert_eq!(amount(Memory, &["1.1"]), Err(out_of_range));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        let units = || Err(Wrong::Because("Invalid units."));
        let whole = Err(Wrong::Because("The threshold should be an integer."));
        assert_eq!(amount(Memory, &["absolute", "10apples"]), units());
        assert_eq!(amount(Memory, &["absolute", "10gb"]), units());
        assert_eq!(amount(Memory, &["absolute", "1.5GiB"]), whole);
        for text in ["GiB", "", "99999999999999999999", "18446744073709551615k"] {
            assert_eq!(amount(Memory, &["absolute", text]), Err(Wrong::Bad), "{text}");
        }
        for text in ["half", "0.4x", "nan", "inf", "", "+"] {
            assert_eq!(amount(Memory, &[text]), Err(Wrong::Bad), "{text}");
        }
        for text in ["10apples", "1.5GiB", "much"] {
            assert_eq!(amount(Disk, &[text]), Err(Wrong::Bad), "{text}");
        }
        assert_eq!(amount(Disk, &["mem_relative", "much"]), Err(Wrong::Bad));
        assert_eq!(amount(Memory, &["absolute"]), Err(Wrong::TooFew));
        assert_eq!(amount(Disk, &["mem_relative"]), Err(Wrong::TooFew));
        assert_eq!(amount(Memory, &["absolute", "1", "2"]), Err(Wrong::TooMany));
        assert_eq!(amount(Memory, &["0.4", "0.5"]), Err(Wrong::TooMany));
        assert_eq!(amount(Disk, &["1", "2"]), Err(Wrong::TooMany));
    }
}
