//! Log lines: to standard error, filtered as `--log` says, as text or JSON.

use super::settings::LogFormat;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Begins logging. Only the first call has an effect.
pub(crate) fn begin(filter: &str, format: LogFormat) {
    // Settings with a filter that makes no sense have been refused.
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let begun = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    // Another subscriber is there already: in tests.
    drop(begun);
}
