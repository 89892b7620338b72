//! The command line of `quorate ctl`, parsed like rabbitmqctl's: options may be anywhere.

mod table;

use super::command::{self, Manual};
use super::exit::{Exit, Failure};
use super::idle;
use std::path::PathBuf;
use std::time::Duration;
use table::{Option_, option, plugins_option};

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Formatter {
    /// Tab separated, or the report of a status command.
    Table,
    Json,
    Csv,
    Pretty,
    Erlang,
}

/// General options and switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) node: Option<String>,
    pub(crate) vhost: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) formatter: Option<Formatter>,
    pub(crate) secret_file: Option<PathBuf>,
    /// Settings of TLS that were given, by name.
    pub(crate) tls: Vec<(&'static str, String)>,
    pub(crate) quiet: bool,
    pub(crate) silent: bool,
    pub(crate) help: bool,
    /// Only checks the command line.
    pub(crate) dry_run: bool,
    /// An option about Erlang's cookie was given, which has no effect.
    pub(crate) cookie: bool,
    pub(crate) priority: Option<i64>,
    pub(crate) apply_to: Option<String>,
    /// Long names of the given switches, without dashes.
    pub(crate) switches: Vec<&'static str>,
    /// Options with a value; long names without dashes.
    pub(crate) values: Vec<(&'static str, String)>,
}

impl Options {
    pub(crate) fn has(&self, switch: &str) -> bool {
        self.switches.contains(&switch)
    }

    /// The value of a verb's own option; the last one counts.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let given = self.values.iter().rev().find(|(option, _)| *option == name);
        given.map(|(_, value)| value.as_str())
    }

    /// All values of a verb's own option, in their order.
    pub(crate) fn all_values(&self, name: &str) -> impl Iterator<Item = &str> {
        let given = self.values.iter().filter(move |(option, _)| *option == name);
        given.map(|(_, value)| value.as_str())
    }

    pub(crate) fn formatter(&self) -> Formatter {
        self.formatter.unwrap_or(Formatter::Table)
    }

    /// Banners are printed only with tables, which people read.
    pub(crate) fn banners(&self) -> bool {
        let for_people = match self.formatter() {
            Formatter::Table | Formatter::Pretty | Formatter::Erlang => true,
            Formatter::Json | Formatter::Csv => false,
        };
        for_people && !self.quiet && !self.silent
    }

    pub(crate) fn headers(&self) -> bool {
        !self.silent && !self.has("no-table-headers")
    }

    pub(crate) fn vhost(&self) -> &str {
        self.vhost.as_deref().unwrap_or("/")
    }
}

/// A valid command line.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) manual: &'static Manual,
    pub(crate) options: Options,
    pub(crate) arguments: Vec<String>,
}

/// The options found so far, and the invalid ones.
#[derive(Default)]
struct Reading {
    /// The tool is `rabbitmq-plugins`, whose short options are its own.
    is_plugins: bool,
    /// The verb is `shutdown`, whose `--wait` has no value.
    is_shutdown: bool,
    options: Options,
    words: Vec<String>,
    invalid: Vec<(String, String)>,
}

impl Reading {
    fn take(&mut self, name: &str, given: Option<String>, rest: &mut impl Iterator<Item = String>) {
        let own = if self.is_plugins { plugins_option(name) } else { None };
        let own = own.or_else(|| {
            (self.is_shutdown && name == "--wait").then_some(Option_::Switch("wait-for-end"))
        });
        let Some(option) = own.or_else(|| option(name)) else {
            return self.invalid.push((name.to_owned(), given.unwrap_or_default()));
        };
        let options = &mut self.options;
        match option {
            Option_::Quiet => options.quiet = true,
            Option_::Silent => options.silent = true,
            Option_::Help => options.help = true,
            Option_::DryRun => options.dry_run = true,
            Option_::Ignored => {}
            Option_::Switch(switch) => options.switches.push(switch),
            Option_::Node
            | Option_::IgnoredValue
            | Option_::Cookie
            | Option_::Vhost
            | Option_::Timeout
            | Option_::Formatter
            | Option_::Priority
            | Option_::ApplyTo
            | Option_::Format
            | Option_::SecretFile
            | Option_::Tls(_)
            | Option_::Valued(_) => {
                let Some(value) = given.or_else(|| rest.next()) else {
                    return self.invalid.push((name.to_owned(), String::new()));
                };
                if !valued(options, &option, &value) {
                    self.invalid.push((name.to_owned(), value));
                }
            }
        }
    }
}

/// Sets an option's value; false if the value is invalid.
fn valued(options: &mut Options, option: &Option_, value: &str) -> bool {
    match option {
        Option_::Node => options.node = Some(value.to_owned()),
        Option_::Vhost => options.vhost = Some(value.to_owned()),
        Option_::SecretFile => options.secret_file = Some(value.into()),
        Option_::Tls(setting) => options.tls.push((setting, value.to_owned())),
        Option_::Valued(name) => options.values.push((name, value.to_owned())),
        Option_::Timeout => {
            options.timeout =
                value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            return options.timeout.is_some();
        }
        Option_::Priority => {
            options.switches.push("priority");
            options.priority = value.parse().ok();
            return options.priority.is_some();
        }
        Option_::ApplyTo => {
            options.switches.push("apply-to");
            options.apply_to = Some(value.to_owned());
        }
        Option_::Format => {
            options.switches.push("format");
            return value.eq_ignore_ascii_case("json");
        }
        Option_::Formatter => {
            options.formatter = Some(match value {
                "table" => Formatter::Table,
                "json" => Formatter::Json,
                "csv" => Formatter::Csv,
                "pretty_table" => Formatter::Pretty,
                "erlang" => Formatter::Erlang,
                _ => return false,
            });
        }
        Option_::Cookie => options.cookie = true,
        Option_::Quiet
        | Option_::Silent
        | Option_::Help
        | Option_::DryRun
        | Option_::Ignored
        | Option_::IgnoredValue
        | Option_::Switch(_) => {}
    }
    true
}

/// Parses a command line, without the program's name.
///
/// # Errors
/// The command line is invalid; exit code 64.
pub(crate) fn parse(line: &[String], program: &str) -> Result<Invocation, Failure> {
    let mut reading = Reading {
        is_plugins: program == command::PLUGINS_TOOL,
        is_shutdown: line.iter().any(|word| word == "shutdown"),
        ..Reading::default()
    };
    let mut rest = line.iter().cloned();
    while let Some(word) = rest.next() {
        if word == "--" {
            reading.words.extend(rest.by_ref());
        } else if let Some((name, value)) =
            word.split_once('=').filter(|(name, _)| name.starts_with("--"))
        {
            reading.take(name, Some(value.to_owned()), &mut rest);
        } else if word.starts_with('-') && word.len() > 1 {
            reading.take(&word, None, &mut rest);
        } else {
            reading.words.push(word);
        }
    }
    let mut words = reading.words.into_iter();
    let Some(name) = words.next() else {
        let exit = if reading.options.help { Exit::Done } else { Exit::Usage };
        return Err(Failure::new(exit, command::overview(program)));
    };
    let Some(manual) = command::find(&name, program) else {
        let unknown = || Failure::new(Exit::Usage, command::unknown(&name, program));
        return Err(idle::lacking(&name).unwrap_or_else(unknown));
    };
    let stray = reading.options.switches.iter().filter(|name| !manual.switches.contains(name));
    reading.invalid.extend(stray.map(|name| (format!("--{name}"), "true".to_owned())));
    let stray = reading.options.values.iter().filter(|(name, _)| !manual.switches.contains(name));
    reading.invalid.extend(stray.map(|(name, value)| (format!("--{name}"), value.clone())));
    let arguments: Vec<String> = words.collect();
    let refuse = |why: &str| Err(refusal(why, line, manual, program));
    if !reading.invalid.is_empty() {
        let list: Vec<String> =
            reading.invalid.iter().map(|(name, value)| format!("\n{name} : {value}")).collect();
        return refuse(&format!("Invalid options for this command:{}", list.concat()));
    }
    let (least, most) = manual.positional;
    if arguments.len() < least && !reading.options.help {
        return refuse("not enough arguments.");
    }
    if arguments.len() > most {
        return refuse("too many arguments.");
    }
    Ok(Invocation { manual, options: reading.options, arguments })
}

/// rabbitmqctl's text for an invalid command line.
pub(crate) fn refusal(why: &str, line: &[String], manual: &Manual, program: &str) -> Failure {
    let usage = command::usage(manual, program);
    let text = format!(
        "Error (argument validation): {why}\nArguments given:\n\t{}\n\n{usage}\n",
        line.join(" ")
    );
    Failure::new(Exit::Usage, text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use expect_test::expect;

    fn line(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn refused(text: &str) -> String {
        let failure = parse(&line(text), "rabbitmqctl").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        failure.text
    }

    #[test]
    fn options_may_stand_anywhere() {
        let orders = [
            "-q -n a:1 -p v list_queues name messages --formatter json -t 5",
            "list_queues --quiet --node a:1 name --vhost=v messages --timeout=5 --formatter=json",
        ];
        for order in orders {
            let invocation = parse(&line(order), "rabbitmqctl").unwrap();
            let options = invocation.options;
            assert_eq!(invocation.manual.name, "list_queues");
            assert_eq!(invocation.arguments, ["name", "messages"]);
            assert!(options.quiet && !options.silent);
            assert_eq!(options.node.as_deref(), Some("a:1"));
            assert_eq!(options.vhost(), "v");
            assert_eq!(options.formatter(), Formatter::Json);
            assert_eq!(options.timeout, Some(Duration::from_secs(5)));
        }
    }

    #[test]
    fn what_follows_two_dashes_is_no_option() {
        let invocation = parse(&line("delete_queue -e -- -u"), "rabbitmqctl").unwrap();
        assert_eq!(invocation.arguments, ["-u"]);
        assert!(invocation.options.has("if-empty") && !invocation.options.has("if-unused"));
    }

    #[test]
    fn refusals_read_like_rabbitmqctls() {
        let refusals = [
            refused("list_queues --frob"),
            refused("delete_queue -p cliq"),
            refused("delete_queue jobs extra"),
            refused("list_queues --timeout x"),
            refused("list_queues --formatter xml"),
            refused("list_queues -p"),
            refused("purge_queue q --if-empty"),
        ];
        expect![[r#"
            Error (argument validation): Invalid options for this command:
            --frob : 
            Arguments given:
            	list_queues --frob

            Usage

            rabbitmqctl [--node <node>] [--longnames] [--quiet] list_queues [--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...] [--timeout <timeout>]

            ----
            Error (argument validation): not enough arguments.
            Arguments given:
            	delete_queue -p cliq

            Usage

            rabbitmqctl [--node <node>] [--longnames] [--quiet] delete_queue [--vhost <vhost>] <queue_name> [--if-empty|-e] [--if-unused|-u] [--force] [--timeout <timeout>]

            ----
            Error (argument validation): too many arguments.
            Arguments given:
            	delete_queue jobs extra

            Usage

            rabbitmqctl [--node <node>] [--longnames] [--quiet] delete_queue [--vhost <vhost>] <queue_name> [--if-empty|-e] [--if-unused|-u] [--force] [--timeout <timeout>]

            ----
            Error (argument validation): Invalid options for this command:
            --timeout : x
            Arguments given:
            	list_queues --timeout x

            Usage

            rabbitmqctl [--node <node>] [--longnames] [--quiet] list_queues [--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...] [--timeout <timeout>]

            ----
            Error (argument validation): Invalid options for this command:
            --formatter : xml
            Arguments given:
            	list_queues --formatter xml

            Usage

            rabbitmqctl [--node <node>] [--longnames] [--quiet] list_queues [--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...] [--timeout <timeout>]

            ----
            Error (argument validation): Invalid options for this command:
            -p : 
            Arguments given:
            	list_queues -p

            Usage

            rabbitmqctl [--node <node>] [--longnames] [--quiet] list_queues [--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...] [--timeout <timeout>]

            ----
            Error (argument validation): Invalid options for this command:
            --if-empty : true
            Arguments given:
            	purge_queue q --if-empty

            Usage

            rabbitmqctl [--node <node>] [--longnames] [--quiet] purge_queue [--vhost <vhost>] <queue> [--timeout <timeout>]
        "#]].assert_eq(&refusals.join("\n----\n"));
    }

    #[test]
    fn silence_takes_headers_too_and_json_has_no_banners() {
        let silent = parse(&line("-s list_queues"), "x").unwrap().options;
        assert!(!silent.banners() && !silent.headers());
        let quiet = parse(&line("-q list_queues"), "x").unwrap().options;
        assert!(!quiet.banners() && quiet.headers());
        let json = parse(&line("list_queues --formatter json"), "x").unwrap().options;
        assert!(!json.banners());
    }
}
