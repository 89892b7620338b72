//! Flags of `quorate server`, made from the table of settings.

use super::table::{SPECS, Spec};
use clap::{Arg, ArgMatches, Command};
use std::collections::BTreeMap;

/// The command with a flag for each setting, and `--config`.
pub(crate) fn command() -> Command {
    let config = Arg::new("config").long("config").value_name("FILE").help(
        "TOML file with settings; names are those of the flags, with _ instead of -. Flags take \
         precedence over the environment, the environment over the file. [env: QUORATE_CONFIG]",
    );
    let stdin = Arg::new("exit-on-stdin-close")
        .long("exit-on-stdin-close")
        .action(clap::ArgAction::SetTrue)
        .hide(true)
        .help("Stop as on SIGTERM when standard input ends");
    Command::new("server")
        .about("Runs one node")
        .next_line_help(true)
        .arg(config)
        .arg(stdin)
        .args(SPECS.iter().map(flag))
}

fn flag(spec: &Spec) -> Arg {
    let default = match spec.default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let help = format!("{}{default} [env: QUORATE_{}]", spec.help.trim(), spec.name.to_uppercase());
    Arg::new(spec.name)
        .long(spec.name.replace('_', "-"))
        .value_name(spec.shape)
        .allow_hyphen_values(true)
        .help(help)
}

/// The texts of the flags that were given.
pub(crate) fn flags_of(matches: &ArgMatches) -> BTreeMap<String, String> {
    std::iter::once("config")
        .chain(SPECS.iter().map(|spec| spec.name))
        .filter_map(|name| {
            matches.get_one::<String>(name).map(|text| (name.to_owned(), text.clone()))
        })
        .collect()
}
