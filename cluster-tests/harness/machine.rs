//! How the tests of one machine share it: clusters that are only watched for what they do run side
//! by side; one that is measured runs alone.

use std::fs::File;
use std::path::PathBuf;

/// The folder of the package whose tests run. It is asked for at run time: a target folder may be shared
/// by several checkouts, and what was compiled in one runs in another.
///
/// # Panics
/// When cargo does not run the tests.
pub fn package_dir() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests").into()
}

/// A cluster's place on the machine; given back when dropped, or when the process dies.
#[derive(Debug)]
pub struct Share {
    _lock: File,
}

impl Share {
    /// Waits for a place: `alone`, or among others that do not ask to be alone.
    ///
    /// # Panics
    /// When the lock file cannot be opened.
    pub async fn take(alone: bool) -> Self {
        let lock = tokio::task::spawn_blocking(move || {
            let folder = std::env::temp_dir().join("quorate-tests");
            std::fs::create_dir_all(&folder)?;
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(folder.join("machine"))?;
            if alone {
                file.lock()?
            } else {
                file.lock_shared()?
            }
            Ok::<_, std::io::Error>(file)
        });
        let lock = lock.await.expect("the waiting thread").expect("the machine's lock");
        Self { _lock: lock }
    }
}
