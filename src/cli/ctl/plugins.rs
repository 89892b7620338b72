//! `rabbitmq-plugins`: what RabbitMQ has as plugins is built in, and always enabled.

use super::Console;
use super::command::{Manual, NO_LIMIT, Verb, plain};
use super::exit::{Exit, Failure};
use super::job::{Job, asked_name, refused};
use super::options::Formatter;
use crate::cli::settings::RABBITMQ_VERSION;
use quorate_catalog::Pattern;
use serde_json::{Value, json};

/// A verb of `rabbitmq-plugins`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PluginVerb {
    List,
    Enable,
    Disable,
    Set,
    IsEnabled,
    Directories,
}

/// What is built in, and whether RabbitMQ enables it only for another one.
pub(super) const PLUGINS: [(&str, bool); 9] = [
    ("rabbitmq_auth_mechanism_ssl", false),
    ("rabbitmq_consistent_hash_exchange", false),
    ("rabbitmq_delayed_message_exchange", false),
    ("rabbitmq_management", false),
    ("rabbitmq_management_agent", true),
    ("rabbitmq_prometheus", false),
    ("rabbitmq_random_exchange", false),
    ("rabbitmq_sharding", false),
    ("rabbitmq_web_dispatch", true),
];

const fn plugins(
    verb: PluginVerb,
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    words: (usize, usize),
    switches: &'static [&'static str],
) -> Manual {
    plain(Verb::Plugins(verb), name, "Plugin Management", arguments, summary, words, switches)
}

/// The verbs, which only `rabbitmq-plugins` has.
pub(crate) const MANUALS: &[Manual] = &[
    plugins(
        PluginVerb::Directories,
        "directories",
        "[--offline] [--online]",
        "Displays that plugins have no directories: they are built in",
        (0, 0),
        &["offline", "online"],
    ),
    plugins(
        PluginVerb::Disable,
        "disable",
        "<plugin1> [ <plugin2>] | --all [--offline] [--online]",
        "Is refused: what is built in cannot be disabled",
        (0, NO_LIMIT),
        &["offline", "online", "all"],
    ),
    plugins(
        PluginVerb::Enable,
        "enable",
        "<plugin1> [ <plugin2>] | --all [--offline] [--online]",
        "Checks that plugins are built in",
        (0, NO_LIMIT),
        &["offline", "online", "all"],
    ),
    plugins(
        PluginVerb::IsEnabled,
        "is_enabled",
        "<plugin1> [ <plugin2>] [--offline] [--online]",
        "Fails if a plugin is not built in",
        (1, NO_LIMIT),
        &["offline", "online"],
    ),
    plugins(
        PluginVerb::List,
        "list",
        "[pattern] [--verbose] [--minimal] [--enabled] [--implicitly-enabled]",
        "Lists plugins and their state",
        (0, 1),
        &["verbose", "minimal", "enabled", "implicitly-enabled", "offline", "online"],
    ),
    plugins(
        PluginVerb::Set,
        "set",
        "<plugin1> [ <plugin2>] [--offline] [--online]",
        "Checks that plugins are built in; the others stay enabled",
        (0, NO_LIMIT),
        &["offline", "online"],
    ),
];

/// Carries out a verb. With `--offline` the node is not asked, as it need not run then.
pub(super) async fn run(
    verb: PluginVerb,
    job: &Job<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let options = &job.invocation.options;
    if options.has("offline") && options.has("online") {
        let text = "Error:\nCannot set both online and offline\n";
        return Err(Failure::new(Exit::Data, text));
    }
    let mut node = job.target.text.clone();
    if !options.has("offline") {
        let connected = job.connect().await;
        match connected {
            Ok(connected) => asked_name(&connected, job.target).clone_into(&mut node),
            // As RabbitMQ's, most of them work while the node is stopped.
            Err(_) if verb != PluginVerb::IsEnabled && !options.has("online") => {}
            Err(failure) => return Err(failure),
        }
    }
    match verb {
        PluginVerb::List => list(job, &node, console),
        PluginVerb::Enable | PluginVerb::Set => enable(verb, job, &node, console),
        PluginVerb::Disable => disable(job, &node, console),
        PluginVerb::IsEnabled => is_enabled(job, &node, console),
        PluginVerb::Directories => {
            job.banner(console, format!("Listing plugin directories used by node {node}"));
            let none = "(none: plugins are built in)";
            let text = format!(
                "Plugin archives directory: {none}\nPlugin expansion directory: {none}\nEnabled \
                 plugins file: {none}"
            );
            let json = json!({
                "plugins_dir": "", "plugins_expand_dir": "", "enabled_plugins_file": "",
            });
            job.answer(console, text, &json);
            Ok(())
        }
    }
}

/// The words that name nothing that is built in.
fn unknown<'a>(job: &Job<'a>) -> Vec<&'a str> {
    let words = job.invocation.arguments.iter().map(String::as_str);
    words.filter(|word| PLUGINS.iter().all(|(name, _)| name != word)).collect()
}

/// The plugins that `list` is asked for: a pattern selects, and `-E` leaves out those that are enabled
/// for another one.
fn list(job: &Job<'_>, node: &str, console: &mut Console<'_>) -> Result<(), Failure> {
    let options = &job.invocation.options;
    let text = if job.word(0).is_empty() { ".*" } else { job.word(0) };
    if options.has("verbose") && options.has("minimal") {
        return Err(Failure::new(Exit::Data, "Error:\nCannot set both verbose and minimal\n"));
    }
    let invalid = |denial| Failure::new(Exit::Data, format!("Error:\n{denial}\n"));
    let pattern = Pattern::new(text).map_err(invalid)?;
    job.banner(console, format!("Listing plugins with pattern \"{text}\" ..."));
    let explicit = options.has("enabled");
    let chosen = PLUGINS.iter().filter(|(name, is_implicit)| {
        pattern.matches(name.as_bytes()) && !(explicit && *is_implicit)
    });
    let chosen: Vec<&(&str, bool)> = chosen.collect();
    if options.formatter() == Formatter::Json {
        let shape = |(name, is_implicit): &&(&str, bool)| {
            json!({
                "name": name,
                "enabled": if *is_implicit { "implicit" } else { "enabled" },
                "running": true,
                "version": RABBITMQ_VERSION,
            })
        };
        let plugins: Vec<Value> = chosen.iter().map(shape).collect();
        console.say(&format!("{}\n", json!({ "status": "running", "plugins": plugins })));
        return Ok(());
    }
    console.say(&listed(&chosen, node, job));
    Ok(())
}

fn listed(chosen: &[&(&str, bool)], node: &str, job: &Job<'_>) -> String {
    let options = &job.invocation.options;
    if options.has("minimal") {
        return chosen.iter().map(|(name, _)| format!("{name}\n")).collect();
    }
    let mut text = String::new();
    if options.banners() {
        text.push_str(" Configured: E = explicitly enabled; e = implicitly enabled\n");
        text.push_str(&format!(" | Status: * = running on {node}\n |/\n"));
    }
    let width = chosen.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, is_implicit) in chosen {
        let sign = if *is_implicit { 'e' } else { 'E' };
        if options.has("verbose") {
            text.push_str(&format!("[{sign}*] {name}\n     Version:     \t{RABBITMQ_VERSION}\n"));
            text.push_str("     Dependencies:\t[]\n     Description: \tbuilt in\n");
        } else {
            text.push_str(&format!("[{sign}*] {name:<width$} {RABBITMQ_VERSION}\n"));
        }
    }
    text
}

fn enable(
    verb: PluginVerb,
    job: &Job<'_>,
    node: &str,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let words = &job.invocation.arguments;
    if words.is_empty() && verb == PluginVerb::Enable && !job.invocation.options.has("all") {
        return Err(Failure::new(Exit::Usage, "Error:\nnot enough arguments.\n"));
    }
    job.banner(console, format!("Enabling plugins on node {node}:"));
    if job.invocation.options.banners() {
        words.iter().for_each(|word| console.say(&format!("{word}\n")));
    }
    let unknown = unknown(job);
    if !unknown.is_empty() {
        let text =
            format!("Error:\nThe following plugins were not found: {}\n", unknown.join(", "));
        return Err(Failure::new(Exit::Data, text));
    }
    if verb == PluginVerb::Set && words.len() < PLUGINS.len() {
        console.complain("Notice: the other plugins are built in, and stay enabled\n");
    }
    let names: Vec<&str> = PLUGINS.iter().map(|(name, _)| *name).collect();
    let lines: String = names.iter().map(|name| format!("  {name}\n")).collect();
    let text = format!(
        "The following plugins have been configured:\n{lines}Applying plugin configuration to \
         {node}...\nPlugin configuration unchanged."
    );
    job.answer(console, text, &json!({ "enabled": [], "set": names }));
    Ok(())
}

/// Nothing is enabled that can be disabled.
fn disable(job: &Job<'_>, node: &str, console: &mut Console<'_>) -> Result<(), Failure> {
    let words = &job.invocation.arguments;
    let all = job.invocation.options.has("all");
    if words.is_empty() && !all {
        return Err(Failure::new(Exit::Usage, "Error:\nnot enough arguments.\n"));
    }
    job.banner(console, format!("Disabling plugins on node {node}:"));
    if job.invocation.options.banners() {
        words.iter().for_each(|word| console.say(&format!("{word}\n")));
    }
    let unknown = unknown(job);
    if !unknown.is_empty() {
        let text =
            format!("Error:\nThe following plugins were not found: {}\n", unknown.join(", "));
        return Err(Failure::new(Exit::Data, text));
    }
    let named = if all { "all plugins".to_owned() } else { words.join(", ") };
    Err(refused(format!(
        "{named}: built in, and cannot be disabled; the settings http_listen and http_tls_listen say \
         where HTTP is served"
    )))
}

fn is_enabled(job: &Job<'_>, node: &str, console: &mut Console<'_>) -> Result<(), Failure> {
    let words = job.invocation.arguments.join(", ");
    let is_one = job.invocation.arguments.len() == 1;
    let (plugin, is) = if is_one { ("Plugin", "is") } else { ("Plugins", "are") };
    let lower = plugin.to_lowercase();
    job.banner(console, format!("Asking node {node} if {lower} {words} {is} enabled..."));
    let unknown = unknown(job);
    if unknown.is_empty() {
        let text = format!("{plugin} {words} {is} enabled on node {node}");
        job.answer(console, &text, &json!({ "result": "ok", "message": text }));
        return Ok(());
    }
    let (plugin, is) = if unknown.len() == 1 { ("Plugin", "is") } else { ("Plugins", "are") };
    let unknown = unknown.join(", ");
    let text = format!("{plugin} {unknown} {is} not enabled or not available on node {node}");
    if job.is_json() {
        let json = json!({ "result": "error", "message": text });
        return Err(Failure::new(Exit::Unavailable, format!("{json}\n")));
    }
    Err(refused(text))
}
