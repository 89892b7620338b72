//! Users: accounts with password, tags and limits (ACL-20, ACL-22 to ACL-25).

use crate::{
    command::CatalogReply,
    denial::Denial,
    machine::Catalog,
    output::{CatalogEvent, CatalogOutput},
    password::{HashAlgorithm, PasswordHash},
    record::{CatalogKey, UserRecord},
};
use quorate_types::ShortString;

/// Largest number of tags of a user.
pub const USER_TAGS_MAX: usize = 64;

/// The user that a new cluster has (ACL-22).
pub(crate) const GUEST: ShortString = ShortString::from_static("guest");

/// Hash of the password `guest` of user `guest` (ACL-22), in the format of ACL-23.
const GUEST_PASSWORD_HASH: [u8; 36] = [
    81, 117, 111, 114, 63, 234, 200, 126, 198, 252, 247, 4, 150, 128, 179, 156, 248, 198, 84, 200,
    147, 132, 105, 217, 132, 218, 127, 56, 30, 40, 135, 191, 114, 102, 225, 7,
];

/// The record of user `guest` (ACL-22).
pub(crate) fn guest() -> UserRecord {
    UserRecord {
        name: GUEST,
        password: PasswordHash {
            algorithm: HashAlgorithm::Sha256,
            bytes: GUEST_PASSWORD_HASH.to_vec(),
        },
        tags: vec![ShortString::from_static("administrator")],
        limits: Default::default(),
    }
}

fn check_tags(tags: &[ShortString]) -> Result<(), Denial> {
    let bounded = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    if tags.len() > USER_TAGS_MAX {
        let (most, received) = (bounded(USER_TAGS_MAX), bounded(tags.len()));
        return Err(Denial::TooManyTags { most, received });
    }
    Ok(())
}

fn detached(tags: &[ShortString]) -> Vec<ShortString> {
    tags.iter().map(ShortString::detached).collect()
}

impl Catalog {
    /// The user of that name.
    #[must_use]
    pub fn user(&self, name: &ShortString) -> Option<&UserRecord> {
        self.users.get(name)
    }

    /// All users, sorted by name.
    pub fn users(&self) -> impl Iterator<Item = &UserRecord> {
        self.users.values()
    }

    /// True if the password is the user's (CONN-13). For a user that does not exist the check takes
    /// as long.
    #[must_use]
    pub fn is_password(&self, user: &ShortString, password: &[u8]) -> bool {
        match self.users.get(user) {
            Some(record) => record.password.is_of(password),
            None => PasswordHash::default().is_of(password),
        }
    }

    /// `add_user`. An equal record for an existing user is a repeat.
    pub(crate) fn add_user(&mut self, user: &UserRecord, out: &mut CatalogOutput) -> CatalogReply {
        if let Err(denied) = check_tags(&user.tags) {
            return CatalogReply::Denied(denied);
        }
        match self.users.get(&user.name) {
            Some(there) if there == user => return CatalogReply::Done,
            Some(there) => return CatalogReply::Denied(Denial::UserExists(there.name.clone())),
            None => {}
        }
        let name = user.name.detached();
        let record = UserRecord { name: name.clone(), tags: detached(&user.tags), ..user.clone() };
        self.users.insert(name.clone(), record);
        self.changed(CatalogKey::User(name), out);
        CatalogReply::Done
    }

    /// `change_password`. Open connections stay open (ACL-25).
    pub(crate) fn change_password(
        &mut self,
        user: &ShortString,
        password: &PasswordHash,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        self.change_user(user, out, |record| record.password = password.clone())
    }

    /// rabbitmqctl's `set_user_tags`.
    pub(crate) fn set_user_tags(
        &mut self,
        user: &ShortString,
        tags: &[ShortString],
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        match check_tags(tags) {
            Ok(()) => self.change_user(user, out, |record| record.tags = detached(tags)),
            Err(denied) => CatalogReply::Denied(denied),
        }
    }

    /// Changes a user's record, if the user exists and the record differs.
    pub(crate) fn change_user(
        &mut self,
        name: &ShortString,
        out: &mut CatalogOutput,
        change: impl FnOnce(&mut UserRecord),
    ) -> CatalogReply {
        let Some(record) = self.users.get_mut(name) else {
            return CatalogReply::Denied(Denial::NoSuchUser(name.detached()));
        };
        let before = record.clone();
        change(record);
        if *record != before {
            self.changed(CatalogKey::User(before.name), out);
        }
        CatalogReply::Done
    }

    /// `delete_user`: removes the user with all permissions. Its connections are closed (CONN-33).
    /// If the user does not exist (any more) the command succeeds, so that a repeat is harmless.
    pub(crate) fn delete_user(
        &mut self,
        name: &ShortString,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        if let Some(user) = self.users.remove(name) {
            self.remove_permissions(|_, of| *of == user.name, out);
            self.changed(CatalogKey::User(user.name.clone()), out);
            out.events.push(CatalogEvent::UserDeleted { user: user.name });
        }
        CatalogReply::Done
    }
}
