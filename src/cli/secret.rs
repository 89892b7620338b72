//! The cluster secret: nodes and `quorate ctl` authenticate with it at the rpc port (DESIGN §1), as
//! RabbitMQ does with Erlang's cookie.

use quorate_rpc::{ClusterSecret, SECRET_BYTES_MIN};
use rand::{RngCore, TryRngCore, rngs::OsRng};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Environment variable that contains the secret.
pub(crate) const VARIABLE: &str = "QUORATE_CLUSTER_SECRET";
/// Random bytes of a new secret; it has twice as many hexadecimal digits.
const SECRET_BYTES: usize = 32;
/// Minimum length of a secret, in characters. Shorter ones can be guessed.
const CHARACTERS_LEAST: usize = SECRET_BYTES_MIN;
/// A file longer than this is not a secret.
const FILE_BYTES_MOST: u64 = 4096;

/// Why the secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    /// The file could not be read or created.
    #[error("setting cluster_secret_file: {path}: {source}")]
    File {
        /// Name of the file.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Other users may read or write the file.
    #[error(
        "setting cluster_secret_file: {path} has mode {mode:o} and group {group}; only its owner may \
         write it, and only its owner and a group of this process may read it (such as mode 600)"
    )]
    Open {
        /// Name of the file.
        path: String,
        /// Permission bits of the file.
        mode: u32,
        /// Id of the file's group.
        group: u32,
    },
    /// The secret is too short, or not one word of printable ASCII.
    #[error(
        "the cluster secret from {origin} is not one word of {CHARACTERS_LEAST} or more printable \
         characters"
    )]
    Unfit {
        /// File or variable.
        origin: String,
    },
    /// No file was named, and the home directory is unknown.
    #[error("setting cluster_secret_file: the setting is empty and HOME is not set")]
    NoHome,
}

/// A secret whose debug output does not contain it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// The secret itself.
    #[cfg(test)]
    fn expose(&self) -> &str {
        &self.0
    }

    /// The secret in the form that the rpc crate takes.
    ///
    /// # Errors
    /// It is shorter than that crate requires.
    pub(crate) fn cluster_secret(&self) -> Result<ClusterSecret, SecretError> {
        let unfit = |_| SecretError::Unfit { origin: "the secret file".to_owned() };
        ClusterSecret::new(self.0.as_bytes()).map_err(unfit)
    }

    fn check(text: &str, origin: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        if text.len() < CHARACTERS_LEAST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(SecretError::Unfit { origin: origin.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The path of the secret, unless the settings name a file.
pub(crate) fn default_path(home: Option<&str>) -> Result<PathBuf, SecretError> {
    let home = home.filter(|home| !home.is_empty()).ok_or(SecretError::NoHome)?;
    Ok(Path::new(home).join(".quorate").join("secret"))
}

/// The secret from the environment, else from the file.
///
/// # Errors
/// There is no secret, it cannot be read, or other users can read it.
pub(crate) fn find(
    variable: Option<&str>,
    file: Option<&Path>,
    home: Option<&str>,
) -> Result<Secret, SecretError> {
    match variable.filter(|secret| !secret.is_empty()) {
        Some(secret) => Secret::check(secret, VARIABLE),
        None => match file {
            Some(path) => read(path),
            None => read(&default_path(home)?),
        },
    }
}

/// Like [`find`], but creates a missing file. If several processes create it at the same time, all
/// get the same secret.
///
/// # Errors
/// As [`find`].
pub(crate) fn find_or_make(
    variable: Option<&str>,
    file: Option<&Path>,
    home: Option<&str>,
) -> Result<Secret, SecretError> {
    if let Some(secret) = variable.filter(|secret| !secret.is_empty()) {
        return Secret::check(secret, VARIABLE);
    }
    let path = match file {
        Some(path) => path.to_owned(),
        None => default_path(home)?,
    };
    match read(&path) {
        Err(SecretError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    make(&path).map_err(|source| SecretError::File { path: path.display().to_string(), source })?;
    read(&path)
}

fn read(path: &Path) -> Result<Secret, SecretError> {
    let named = path.display().to_string();
    let failed = |source| SecretError::File { path: named.clone(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let (mode, group) = (metadata.mode() & 0o777, metadata.gid());
    if !is_private(mode, || is_own_group(group)) {
        return Err(SecretError::Open { path: named, mode, group });
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MOST).read_to_string(&mut text).map_err(failed)?;
    Secret::check(&text, &named)
}

/// True if only the owner can write the file, and only the owner and perhaps a group of this process
/// can read it: Kubernetes mounts a Secret with mode 440 for the group of the pod.
fn is_private(mode: u32, has_own_group: impl FnOnce() -> bool) -> bool {
    mode & 0o037 == 0 && (mode & 0o040 == 0 || has_own_group())
}

/// True if this process belongs to the group. If its supplementary groups are not known, it does not
/// belong to them.
fn is_own_group(group: u32) -> bool {
    let further = rustix::process::getgroups().unwrap_or_default();
    std::iter::once(rustix::process::getegid()).chain(further).any(|own| own.as_raw() == group)
}

/// Writes a new secret to a file of a unique name and links that to `path`, so that `path` has all
/// of its content or does not exist, and the first of several processes wins.
fn make(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    if !directory.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut bytes = [0; SECRET_BYTES];
    OsRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
    let draft = directory.join(format!(".secret-{:016x}", rand::rng().next_u64()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let linked = file
        .write_all(format!("{digits}\n").as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&draft, path));
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_start_makes_a_secret_that_only_its_owner_reads() {
        let home = tempfile::tempdir().unwrap();
        let home_text = home.path().to_str();
        let made = find_or_make(None, None, home_text).unwrap();
        assert_eq!(made.expose().len(), 64);
        let path = home.path().join(".quorate/secret");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert_eq!(find_or_make(None, None, home_text).unwrap(), made);
        assert_eq!(find(None, None, home_text).unwrap(), made);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn of_many_that_make_it_at_once_all_get_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let makers: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || find_or_make(None, Some(&path), None).unwrap())
            })
            .collect();
        let mut secrets: Vec<String> =
            makers.into_iter().map(|maker| maker.join().unwrap().expose().to_owned()).collect();
        secrets.dedup();
        assert_eq!(secrets.len(), 1);
    }

    #[test]
    fn a_file_that_others_may_read_or_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        fs::write(&path, "0123456789abcdef").unwrap();
        let group = fs::metadata(&path).unwrap().gid();
        for mode in [0o644, 0o604, 0o660, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refusal = find(None, Some(&path), None).unwrap_err().to_string();
            let told = format!("has mode {mode:o} and group {group}; only its owner may write it");
            assert!(refusal.contains(&told), "{refusal}");
        }
        // A new file has the group of the process.
        for mode in [0o600, 0o400, 0o640, 0o440] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(find(None, Some(&path), None).unwrap().expose(), "0123456789abcdef");
        }
    }

    #[test]
    fn a_group_may_read_the_file_if_it_is_one_of_the_process() {
        assert!(is_private(0o440, || true) && is_private(0o640, || true));
        assert!(!is_private(0o440, || false) && !is_private(0o640, || false));
        assert!(!is_private(0o460, || true) && !is_private(0o444, || true));
        assert!(is_own_group(rustix::process::getegid().as_raw()));
        let own = rustix::process::getgroups().unwrap();
        assert!(own.iter().all(|group| is_own_group(group.as_raw())));
        let foreign = (1..).find(|id| own.iter().all(|group| group.as_raw() != *id)).unwrap();
        let egid = rustix::process::getegid().as_raw();
        assert!(foreign == egid || !is_own_group(foreign));
    }

    #[test]
    fn the_variable_wins_over_the_file_and_a_guessable_one_is_refused() {
        let missing = Path::new("/nowhere/secret");
        let secret = find_or_make(Some("0123456789abcdef"), Some(missing), None).unwrap();
        assert_eq!(secret.expose(), "0123456789abcdef");
        let refusal = find(Some("short"), None, None).unwrap_err().to_string();
        assert_eq!(
            refusal,
            "the cluster secret from QUORATE_CLUSTER_SECRET is not one word of 16 or more \
             printable characters"
        );
        assert_eq!(format!("{secret:?}"), "Secret");
    }

    #[test]
    fn without_home_and_file_there_is_no_secret() {
        assert!(matches!(find(None, None, None), Err(SecretError::NoHome)));
        assert!(matches!(find(None, None, Some("")), Err(SecretError::NoHome)));
    }
}
