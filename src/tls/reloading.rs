//! A TLS configuration that follows its files: new handshakes take the newest one, connections keep
//! the one that they began with.

use crate::files::{Files, Mark, TlsError};
use parking_lot::{Mutex, RwLock};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{task::spawn_blocking, time::sleep};

/// Pause between looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Makes a configuration of the files' contents.
type Build<C> = Box<dyn Fn(&Files) -> Result<C, TlsError> + Send + Sync>;

/// The present configuration, and where it comes from.
pub(crate) struct Reloading<C> {
    files: Files,
    build: Build<C>,
    present: RwLock<Arc<C>>,
    seen: Mutex<Seen>,
}

impl<C> fmt::Debug for Reloading<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading").field("files", &self.files).finish_non_exhaustive()
    }
}

/// The last look at the files.
struct Seen {
    marks: Vec<Option<Mark>>,
    /// Why the files could not be loaded.
    error: Option<String>,
}

impl<C: Send + Sync + 'static> Reloading<C> {
    pub(crate) fn load(
        files: Files,
        build: impl Fn(&Files) -> Result<C, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        // Before the files are read: a change in between is seen later.
        let seen = Seen { marks: files.marks(), error: None };
        let present = RwLock::new(Arc::new(build(&files)?));
        Ok(Self { files, build: Box::new(build), present, seen: Mutex::new(seen) })
    }

    /// The configuration of new handshakes.
    pub(crate) fn present(&self) -> Arc<C> {
        Arc::clone(&self.present.read())
    }

    /// Looks at the files now and then, for ever.
    pub(crate) async fn keep_current(self: Arc<Self>) {
        loop {
            sleep(LOOK_EVERY).await;
            let looking = Arc::clone(&self);
            // A disk that hangs must not keep a thread of the runtime.
            let _ = spawn_blocking(move || looking.look()).await;
        }
    }

    /// Loads files that have changed. What cannot be loaded is logged once and tried again, and the
    /// present configuration stays.
    pub(crate) fn look(&self) {
        let mut seen = self.seen.lock();
        let marks = self.files.marks();
        if marks == seen.marks && seen.error.is_none() {
            return;
        }
        let file = self.files.certificate.path.display();
        match (self.build)(&self.files) {
            Ok(config) => {
                *self.present.write() = Arc::new(config);
                *seen = Seen { marks, error: None };
                tracing::info!(%file, "TLS certificate loaded again");
            }
            Err(error) => {
                let text = error.to_string();
                if seen.error.as_ref() != Some(&text) {
                    tracing::warn!("cannot load a TLS certificate again, keeping it: {text}");
                }
                seen.error = Some(text);
            }
        }
    }
}
