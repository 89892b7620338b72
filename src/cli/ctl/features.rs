//! `list_feature_flags`, `enable_feature_flag` and `list_deprecated_features`: a node has RabbitMQ's
//! flags, all of them enabled, and no deprecated features.

use super::Console;
use super::command::{Manual, NO_LIMIT, Verb, plain};
use super::exit::{Exit, Failure};
use super::format::{Sheet, render};
use super::job::Job;
use super::value::Value;
use quorate_management::FEATURE_FLAGS;

/// A verb about feature flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeatureVerb {
    List,
    Enable,
    ListDeprecated,
}

const FLAG_COLUMNS: [&str; 6] = ["name", "state", "stability", "provided_by", "desc", "doc_url"];
const DEPRECATED_COLUMNS: [&str; 6] =
    ["name", "deprecation_phase", "state", "provided_by", "desc", "doc_url"];

pub(crate) const MANUALS: &[Manual] = &[
    plain(
        Verb::Feature(FeatureVerb::Enable),
        "enable_feature_flag",
        "Feature flags",
        "[--opt-in] <all | feature_flag>",
        "Checks that there is such a feature flag: all are enabled",
        (1, 1),
        &["opt-in"],
    ),
    plain(
        Verb::Feature(FeatureVerb::ListDeprecated),
        "list_deprecated_features",
        "Feature flags",
        "[--used] [<column> ...]",
        "Lists deprecated features, of which there are none",
        (0, NO_LIMIT),
        &["used", "no-table-headers"],
    ),
    plain(
        Verb::Feature(FeatureVerb::List),
        "list_feature_flags",
        "Feature flags",
        "[<column> ...]",
        "Lists feature flags",
        (0, NO_LIMIT),
        &["no-table-headers"],
    ),
];

/// The columns that were named, or these; an unknown one is refused.
fn columns(job: &Job<'_>, known: &[&str], usual: usize) -> Result<Vec<String>, Failure> {
    let named = &job.invocation.arguments;
    if named.is_empty() {
        return Ok(known.iter().take(usual).map(|name| (*name).to_owned()).collect());
    }
    let strange: Vec<&str> =
        named.iter().map(String::as_str).filter(|name| !known.contains(name)).collect();
    if strange.is_empty() {
        return Ok(named.clone());
    }
    let strange = strange.join(",");
    let text = format!("Error (argument validation): Info key(s) {strange} are not supported\n");
    Err(Failure::new(Exit::Usage, text))
}

/// Carries out a verb. Only whether the node is there depends on it.
pub(super) async fn run(
    verb: FeatureVerb,
    job: &Job<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let options = &job.invocation.options;
    match verb {
        FeatureVerb::List => {
            let columns = columns(job, &FLAG_COLUMNS, 2)?;
            job.banner(console, "Listing feature flags ...");
            job.connect().await?;
            console.say(&render(&flags(columns), options.formatter(), options.headers()));
        }
        FeatureVerb::ListDeprecated => {
            let columns = columns(job, &DEPRECATED_COLUMNS, 3)?;
            let used = if options.has("used") { " in use" } else { "" };
            job.banner(console, format!("Listing deprecated features{used} ..."));
            job.connect().await?;
            let none = Sheet { columns, rows: Vec::new() };
            console.say(&render(&none, options.formatter(), options.headers()));
        }
        FeatureVerb::Enable => {
            let name = job.word(0);
            job.banner(
                console,
                match name {
                    "all" => "Enabling all feature flags ...".to_owned(),
                    _ => format!("Enabling feature flag \"{name}\" ..."),
                },
            );
            let connected = job.connect().await?;
            if name != "all" && FEATURE_FLAGS.iter().all(|(flag, _)| *flag != name) {
                let node = super::job::asked_name(&connected, job.target);
                let text = format!("Error:\nThis feature flag is not supported by node {node}\n");
                return Err(Failure::new(Exit::Usage, text));
            }
        }
    }
    Ok(())
}

fn flags(columns: Vec<String>) -> Sheet {
    let row = |(name, description): &(&str, &str)| {
        let cell = |column: &String| match column.as_str() {
            "name" => Value::word(*name),
            "state" => Value::word("enabled"),
            "stability" => Value::word("stable"),
            "provided_by" => Value::word("rabbit"),
            "desc" => Value::text(*description),
            _ => Value::Empty,
        };
        columns.iter().map(cell).collect()
    };
    let rows = FEATURE_FLAGS.iter().map(row).collect();
    Sheet { columns, rows }
}
