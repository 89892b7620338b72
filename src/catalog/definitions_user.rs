//! A user of a definitions file: with the hash of the password, with the password, or with neither
//! (ACL-26).

use crate::{
    definitions_fields::Fields,
    definitions_import::DefinitionsError,
    limits::UserLimits,
    password::{HashAlgorithm, PasswordHash},
    record::UserRecord,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Hashes a password with a new salt; the error is the reason why the password is refused. The
/// caller has the chance for the salt: the hash is in the command, so that every replica gets the
/// same one.
pub type HashPassword = dyn Fn(&[u8]) -> Result<PasswordHash, String>;

/// Reads a user; `there` is the one of that name that exists already.
pub(crate) fn read(
    fields: &Fields<'_>,
    there: Option<&UserRecord>,
    hash_password: &HashPassword,
) -> Result<UserRecord, DefinitionsError> {
    let limit = |limits: &Fields<'_>, name| limits.optional_integer(name);
    let limits = match fields.optional_object("limits")? {
        None => UserLimits::default(),
        Some(limits) => UserLimits {
            connections_max: limit(&limits, "max-connections")?,
            channels_max: limit(&limits, "max-channels")?,
        },
    };
    Ok(UserRecord {
        name: fields.short("name")?,
        password: password(fields, there.map(|user| &user.password), hash_password)?,
        // RabbitMQ insists too: a user that is there would lose its tags for a file that lacks them.
        tags: fields.value("tags").and_then(|_| fields.words("tags"))?,
        limits,
    })
}

fn password(
    fields: &Fields<'_>,
    there: Option<&PasswordHash>,
    hash_password: &HashPassword,
) -> Result<PasswordHash, DefinitionsError> {
    match (fields.has("password_hash"), fields.has("password")) {
        (true, true) => Err(fields.wrong("'password' and 'password_hash' exclude each other")),
        (true, false) => hash(fields),
        (false, true) => {
            let plain = fields.text("password")?.as_bytes();
            // The salt stays with the password: an import that is repeated changes nothing.
            match there.filter(|there| there.is_of(plain)) {
                Some(there) => Ok(there.clone()),
                None => hash_password(plain).map_err(|reason| fields.wrong(reason)),
            }
        }
        (false, false) => Ok(PasswordHash::default()),
    }
}

fn hash(fields: &Fields<'_>) -> Result<PasswordHash, DefinitionsError> {
    let algorithm = match fields.optional_text("hashing_algorithm")? {
        None => HashAlgorithm::default(),
        Some(name) => HashAlgorithm::parse(name)
            .ok_or_else(|| fields.wrong(format!("unknown hashing_algorithm '{name}'")))?,
    };
    let bytes = STANDARD
        .decode(fields.text("password_hash")?)
        .map_err(|error| fields.wrong(format!("password_hash is not base64: {error}")))?;
    Ok(PasswordHash { algorithm, bytes })
}
