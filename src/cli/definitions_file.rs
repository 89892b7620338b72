//! Setting `definitions_file`: definitions that are imported at every start, as RabbitMQ does. The
//! file is read before the node listens, and imported once the node serves clients. Until then the
//! node is not ready.
//!
//! Every node imports its own file, since each may have been given another one: nodes are restarted
//! one by one. The same file on several nodes is harmless (`broker/names/definitions`).

use quorate_broker::Broker;
use quorate_catalog::{Definitions, DefinitionsError};
use std::{collections::BTreeSet, io, path::Path, sync::Arc, time::Duration};
use tokio::{task::JoinHandle, time::sleep};

/// How often it is checked whether the node serves clients.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Pause after the first import that failed. It doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Objects that one log line names.
const NAMED_MAX: usize = 20;

/// Why a node cannot start with its file of definitions.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DefinitionsFileError {
    /// The file cannot be read.
    #[error("setting definitions_file: {path}: {source}")]
    Read {
        /// Name of the file.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The content is no JSON document with definitions.
    #[error("setting definitions_file: {path}: {source}")]
    Form {
        /// Name of the file.
        path: String,
        /// What is wrong, without the content, which contains passwords.
        source: DefinitionsError,
    },
}

/// A file of definitions that has been read.
pub(crate) struct DefinitionsFile {
    path: String,
    text: Arc<str>,
}

impl DefinitionsFile {
    /// Reads the file and checks its form. Objects are checked by the import, since that depends on
    /// what the cluster has.
    ///
    /// # Errors
    /// The file cannot be read, or has another form.
    pub(crate) fn read(path: &Path) -> Result<Self, DefinitionsFileError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| DefinitionsFileError::Read { path: name.clone(), source })?;
        Definitions::check_form(&text)
            .map_err(|source| DefinitionsFileError::Form { path: name.clone(), source })?;
        Ok(Self { path: name, text: text.into() })
    }

    /// Makes the node not ready, and begins the import.
    pub(crate) fn begin_import(self, broker: Broker) -> JoinHandle<()> {
        broker.operator().await_definitions(Some(self.reason("not imported yet")));
        tokio::spawn(async move { self.import(&broker).await })
    }

    fn reason(&self, why: impl std::fmt::Display) -> String {
        format!("definitions of {}: {why}", self.path)
    }

    /// Imports the definitions, again and again until it succeeds.
    async fn import(&self, broker: &Broker) {
        let (file, mut pause) = (self.path.as_str(), RETRY_FIRST);
        loop {
            while !broker.views().readiness().serves() {
                sleep(CHECK_INTERVAL).await;
            }
            match broker.operator().import_definitions(Arc::clone(&self.text)).await {
                Ok(imported) => {
                    let changed = listed(&imported.changed);
                    tracing::info!(file, changed, "definitions are imported");
                    broker.operator().await_definitions(None);
                    return;
                }
                Err(error) => {
                    let again_in_s = pause.as_secs();
                    tracing::warn!(file, %error, again_in_s, "definitions were not imported");
                    broker.operator().await_definitions(Some(self.reason(error)));
                    sleep(pause).await;
                    pause = (2 * pause).min(RETRY_MAX);
                }
            }
        }
    }
}

/// Objects as text, so that the log says what an import has overwritten.
fn listed(objects: &BTreeSet<String>) -> String {
    let named: Vec<&str> = objects.iter().take(NAMED_MAX).map(String::as_str).collect();
    match objects.len().saturating_sub(NAMED_MAX) {
        0 if named.is_empty() => "nothing".to_owned(),
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn refusal(text: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("definitions.json");
        std::fs::write(&path, text).unwrap();
        let refused = DefinitionsFile::read(&path).err().unwrap().to_string();
        refused.replace(&folder.path().display().to_string(), "FOLDER")
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused_with_its_name_and_without_its_content() {
        let missing = DefinitionsFile::read(Path::new("/nowhere/d.json")).err().unwrap();
        let lines = [
            missing.to_string(),
            refusal(b"\xff"),
            refusal(b"{\"users\": [{\"name\": \"u\", \"password\": \"secret\"}"),
            refusal(b"[\"secret\"]"),
            refusal(b"{\"users\": {\"name\": \"secret\"}}"),
            refusal(b"{\"queues\": [\"secret\"]}"),
        ];
        expect_test::expect![[r#"
            setting definitions_file: /nowhere/d.json: No such file or directory (os error 2)
            setting definitions_file: FOLDER/definitions.json: stream did not contain valid UTF-8
            setting definitions_file: FOLDER/definitions.json: definitions are not valid: EOF while parsing a list at line 1 column 46
            setting definitions_file: FOLDER/definitions.json: definitions are not valid: not a JSON object
            setting definitions_file: FOLDER/definitions.json: definitions are not valid: users: not a list
            setting definitions_file: FOLDER/definitions.json: definitions are not valid: queues: an element is not an object
        "#]]
        .assert_eq(&format!("{}\n", lines.join("\n")));
    }

    #[test]
    fn the_log_names_what_has_changed_up_to_a_bound() {
        let users = |count| (0..count).map(|number| format!("user '{number:02}'")).collect();
        assert_eq!(listed(&users(0)), "nothing");
        assert_eq!(listed(&users(2)), "user '00', user '01'");
        let line = listed(&users(22));
        assert!(line.ends_with("user '18', user '19' and 2 more"), "{line}");
    }
}
