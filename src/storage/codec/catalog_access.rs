//! Encoding of virtual hosts, users, permissions and limits in the catalog's commands, records and
//! replies.

use super::{
    DecodeError,
    catalog_members::{member_denial, put_member_denial},
    catalog_tasks::{put_task_denial, task_denial},
    config::{put_queue_type, queue_type},
    cursor::{Cursor, put_bool, put_bytes, put_int, put_len, put_short, put_signed},
};
use bytes::{BufMut, BytesMut};
use quorate_catalog::{
    AccessCommand, Denial, HashAlgorithm, Limit, PasswordHash, PermissionRecord,
    TopicPermissionRecord, UserLimit, UserLimits, UserRecord, VhostLimits, VhostMetadata,
    VhostRecord, VhostUpdate,
};
use quorate_types::{CatalogIndex, MachineVersion, QueueType, ShortString};

const ADD_VHOST: u8 = 1;
const UPDATE_VHOST: u8 = 2;
const DELETE_VHOST: u8 = 3;
const SET_VHOST_LIMITS: u8 = 4;
const ADD_USER: u8 = 5;
const CHANGE_PASSWORD: u8 = 6;
const SET_USER_TAGS: u8 = 7;
const DELETE_USER: u8 = 8;
const SET_USER_LIMITS: u8 = 9;
const CLEAR_USER_LIMITS: u8 = 10;
const SET_PERMISSIONS: u8 = 11;
const CLEAR_PERMISSIONS: u8 = 12;
const SET_TOPIC_PERMISSIONS: u8 = 13;
const CLEAR_TOPIC_PERMISSIONS: u8 = 14;
const SET_TRACING: u8 = 15;
const SET_PROTECTION: u8 = 16;

const NO_SUCH_USER: u8 = 1;
const USER_EXISTS: u8 = 2;
const NO_SUCH_VHOST: u8 = 3;
const INVALID_PATTERN: u8 = 4;
const TOO_MANY_TAGS: u8 = 5;
const MEMBER: u8 = 6;
const VHOST_PROTECTED: u8 = 7;
const PROTECTION_TOO_EARLY: u8 = 8;
const TASK: u8 = 9;

/// Bits of a virtual host's record.
const TRACED: u8 = 1;
const PROTECTED: u8 = 2;

pub(super) fn put_access_command(command: &AccessCommand, out: &mut BytesMut) {
    use AccessCommand as C;
    match command {
        C::AddVhost { vhost, metadata } => {
            put_named(ADD_VHOST, vhost, out);
            put_metadata(metadata, out);
        }
        C::UpdateVhost { vhost, update } => {
            put_named(UPDATE_VHOST, vhost, out);
            put_update(update, out);
        }
        C::DeleteVhost { vhost } => put_named(DELETE_VHOST, vhost, out),
        C::SetVhostLimits { vhost, limits } => {
            put_named(SET_VHOST_LIMITS, vhost, out);
            put_vhost_limits(*limits, out);
        }
        C::AddUser(user) => {
            out.put_u8(ADD_USER);
            put_user(user, out);
        }
        C::ChangePassword { user, password } => {
            put_named(CHANGE_PASSWORD, user, out);
            put_password(password, out);
        }
        C::SetUserTags { user, tags } => {
            put_named(SET_USER_TAGS, user, out);
            put_words(tags, out);
        }
        C::DeleteUser { user } => put_named(DELETE_USER, user, out),
        C::SetUserLimits { user, limits } => {
            put_named(SET_USER_LIMITS, user, out);
            put_user_limits(*limits, out);
        }
        C::ClearUserLimits { user, which } => {
            put_named(CLEAR_USER_LIMITS, user, out);
            out.put_u8(which_limit(*which));
        }
        C::SetPermissions(record) => {
            out.put_u8(SET_PERMISSIONS);
            put_permission(record, out);
        }
        C::ClearPermissions { vhost, user } => {
            put_named(CLEAR_PERMISSIONS, vhost, out);
            put_short(out, user);
        }
        C::SetTopicPermissions(record) => {
            out.put_u8(SET_TOPIC_PERMISSIONS);
            put_topic_permission(record, out);
        }
        C::ClearTopicPermissions { vhost, user, exchange } => {
            put_named(CLEAR_TOPIC_PERMISSIONS, vhost, out);
            put_short(out, user);
            put_bool(out, exchange.is_some());
            exchange.iter().for_each(|exchange| put_short(out, exchange));
        }
        C::SetTracing { vhost, tracing } => put_flag(SET_TRACING, vhost, *tracing, out),
        C::SetProtection { vhost, protected } => put_flag(SET_PROTECTION, vhost, *protected, out),
    }
}

fn which_limit(which: UserLimit) -> u8 {
    match which {
        UserLimit::Connections => 0,
        UserLimit::Channels => 1,
        UserLimit::All => 2,
    }
}

pub(super) fn access_command(cursor: &mut Cursor<'_>) -> Result<AccessCommand, DecodeError> {
    use AccessCommand as C;
    Ok(match cursor.u8()? {
        ADD_VHOST => C::AddVhost { vhost: cursor.short()?, metadata: metadata(cursor)? },
        UPDATE_VHOST => C::UpdateVhost { vhost: cursor.short()?, update: update(cursor)? },
        DELETE_VHOST => C::DeleteVhost { vhost: cursor.short()? },
        SET_VHOST_LIMITS => {
            C::SetVhostLimits { vhost: cursor.short()?, limits: vhost_limits(cursor)? }
        }
        ADD_USER => C::AddUser(user(cursor)?),
        CHANGE_PASSWORD => C::ChangePassword { user: cursor.short()?, password: password(cursor)? },
        SET_USER_TAGS => C::SetUserTags { user: cursor.short()?, tags: words(cursor)? },
        DELETE_USER => C::DeleteUser { user: cursor.short()? },
        SET_USER_LIMITS => C::SetUserLimits { user: cursor.short()?, limits: user_limits(cursor)? },
        CLEAR_USER_LIMITS => {
            C::ClearUserLimits { user: cursor.short()?, which: user_limit(cursor)? }
        }
        SET_PERMISSIONS => C::SetPermissions(permission(cursor)?),
        CLEAR_PERMISSIONS => C::ClearPermissions { vhost: cursor.short()?, user: cursor.short()? },
        SET_TOPIC_PERMISSIONS => C::SetTopicPermissions(topic_permission(cursor)?),
        CLEAR_TOPIC_PERMISSIONS => C::ClearTopicPermissions {
            vhost: cursor.short()?,
            user: cursor.short()?,
            exchange: if cursor.bool()? { Some(cursor.short()?) } else { None },
        },
        SET_TRACING => C::SetTracing { vhost: cursor.short()?, tracing: cursor.bool()? },
        SET_PROTECTION => C::SetProtection { vhost: cursor.short()?, protected: cursor.bool()? },
        _ => return Err(DecodeError::Invalid("access command")),
    })
}

pub(super) fn put_denial(denial: &Denial, out: &mut BytesMut) {
    match denial {
        Denial::NoSuchUser(name) => put_named(NO_SUCH_USER, name, out),
        Denial::UserExists(name) => put_named(USER_EXISTS, name, out),
        Denial::NoSuchVhost(name) => put_named(NO_SUCH_VHOST, name, out),
        Denial::VhostProtected(name) => put_named(VHOST_PROTECTED, name, out),
        Denial::ProtectionTooEarly { machine } => {
            out.put_u8(PROTECTION_TOO_EARLY);
            put_int(out, u64::from(machine.0));
        }
        Denial::InvalidPattern { pattern, reason, at } => {
            out.put_u8(INVALID_PATTERN);
            put_bytes(out, pattern.as_bytes());
            put_bytes(out, reason.as_bytes());
            put_int(out, u64::from(*at));
        }
        Denial::TooManyTags { most, received } => {
            out.put_u8(TOO_MANY_TAGS);
            put_int(out, u64::from(*most));
            put_int(out, u64::from(*received));
        }
        Denial::Member(denial) => {
            out.put_u8(MEMBER);
            put_member_denial(denial, out);
        }
        Denial::Task(denial) => {
            out.put_u8(TASK);
            put_task_denial(*denial, out);
        }
    }
}

pub(super) fn denial(cursor: &mut Cursor<'_>) -> Result<Denial, DecodeError> {
    Ok(match cursor.u8()? {
        NO_SUCH_USER => Denial::NoSuchUser(cursor.short()?),
        USER_EXISTS => Denial::UserExists(cursor.short()?),
        NO_SUCH_VHOST => Denial::NoSuchVhost(cursor.short()?),
        VHOST_PROTECTED => Denial::VhostProtected(cursor.short()?),
        PROTECTION_TOO_EARLY => {
            Denial::ProtectionTooEarly { machine: MachineVersion(small(cursor)?) }
        }
        INVALID_PATTERN => Denial::InvalidPattern {
            pattern: cursor.string()?,
            reason: cursor.string()?,
            at: small(cursor)?,
        },
        TOO_MANY_TAGS => Denial::TooManyTags { most: small(cursor)?, received: small(cursor)? },
        MEMBER => Denial::Member(member_denial(cursor)?),
        TASK => Denial::Task(task_denial(cursor)?),
        _ => return Err(DecodeError::Invalid("denial")),
    })
}

fn small(cursor: &mut Cursor<'_>) -> Result<u32, DecodeError> {
    u32::try_from(cursor.int()?).map_err(|_| DecodeError::Invalid("count"))
}

fn put_named(kind: u8, name: &ShortString, out: &mut BytesMut) {
    out.put_u8(kind);
    put_short(out, name);
}

fn put_flag(kind: u8, name: &ShortString, flag: bool, out: &mut BytesMut) {
    put_named(kind, name, out);
    put_bool(out, flag);
}

fn put_words(words: &[ShortString], out: &mut BytesMut) {
    put_len(out, words.len());
    words.iter().for_each(|word| put_short(out, word));
}

fn words(cursor: &mut Cursor<'_>) -> Result<Vec<ShortString>, DecodeError> {
    cursor.list(Cursor::short)
}

fn put_limit(limit: Option<Limit>, out: &mut BytesMut) {
    put_bool(out, limit.is_some());
    limit.iter().for_each(|limit| put_signed(out, *limit));
}

fn limit(cursor: &mut Cursor<'_>) -> Result<Option<Limit>, DecodeError> {
    Ok(if cursor.bool()? { Some(cursor.signed()?) } else { None })
}

fn put_vhost_limits(limits: VhostLimits, out: &mut BytesMut) {
    put_limit(limits.connections_max, out);
    put_limit(limits.queues_max, out);
}

fn vhost_limits(cursor: &mut Cursor<'_>) -> Result<VhostLimits, DecodeError> {
    Ok(VhostLimits { connections_max: limit(cursor)?, queues_max: limit(cursor)? })
}

fn put_user_limits(limits: UserLimits, out: &mut BytesMut) {
    put_limit(limits.connections_max, out);
    put_limit(limits.channels_max, out);
}

fn user_limits(cursor: &mut Cursor<'_>) -> Result<UserLimits, DecodeError> {
    Ok(UserLimits { connections_max: limit(cursor)?, channels_max: limit(cursor)? })
}

fn user_limit(cursor: &mut Cursor<'_>) -> Result<UserLimit, DecodeError> {
    Ok(match cursor.u8()? {
        0 => UserLimit::Connections,
        1 => UserLimit::Channels,
        2 => UserLimit::All,
        _ => return Err(DecodeError::Invalid("limit")),
    })
}

fn put_type(queue_type: Option<QueueType>, out: &mut BytesMut) {
    put_bool(out, queue_type.is_some());
    queue_type.iter().for_each(|queue_type| put_queue_type(*queue_type, out));
}

fn default_type(cursor: &mut Cursor<'_>) -> Result<Option<QueueType>, DecodeError> {
    Ok(if cursor.bool()? { Some(queue_type(cursor)?) } else { None })
}

fn put_metadata(metadata: &VhostMetadata, out: &mut BytesMut) {
    put_bytes(out, metadata.description.as_bytes());
    put_words(&metadata.tags, out);
    put_type(metadata.default_queue_type, out);
}

fn metadata(cursor: &mut Cursor<'_>) -> Result<VhostMetadata, DecodeError> {
    Ok(VhostMetadata {
        description: cursor.string()?,
        tags: words(cursor)?,
        default_queue_type: default_type(cursor)?,
    })
}

fn put_update(update: &VhostUpdate, out: &mut BytesMut) {
    put_bool(out, update.description.is_some());
    update.description.iter().for_each(|text| put_bytes(out, text.as_bytes()));
    put_bool(out, update.tags.is_some());
    update.tags.iter().for_each(|tags| put_words(tags, out));
    put_type(update.default_queue_type, out);
}

fn update(cursor: &mut Cursor<'_>) -> Result<VhostUpdate, DecodeError> {
    Ok(VhostUpdate {
        description: if cursor.bool()? { Some(cursor.string()?) } else { None },
        tags: if cursor.bool()? { Some(words(cursor)?) } else { None },
        default_queue_type: default_type(cursor)?,
    })
}

pub(super) fn put_vhost(vhost: &VhostRecord, out: &mut BytesMut) {
    put_short(out, &vhost.name);
    put_int(out, vhost.created.0);
    put_metadata(&vhost.metadata, out);
    put_vhost_limits(vhost.limits, out);
    // Without protection the byte is the truth value that earlier machine versions know.
    let traced = if vhost.tracing { TRACED } else { 0 };
    out.put_u8(if vhost.protected { traced | PROTECTED } else { traced });
}

pub(super) fn vhost(cursor: &mut Cursor<'_>) -> Result<VhostRecord, DecodeError> {
    let (name, created) = (cursor.short()?, CatalogIndex(cursor.int()?));
    let (metadata, limits) = (metadata(cursor)?, vhost_limits(cursor)?);
    let bits = cursor.u8()?;
    if bits & !(TRACED | PROTECTED) != 0 {
        return Err(DecodeError::Invalid("bits of a virtual host"));
    }
    let (tracing, protected) = (bits & TRACED != 0, bits & PROTECTED != 0);
    Ok(VhostRecord { name, created, metadata, limits, tracing, protected })
}

fn put_password(password: &PasswordHash, out: &mut BytesMut) {
    out.put_u8(match password.algorithm {
        HashAlgorithm::Sha256 => 0,
        HashAlgorithm::Sha512 => 1,
        HashAlgorithm::Md5 => 2,
    });
    put_bytes(out, &password.bytes);
}

fn password(cursor: &mut Cursor<'_>) -> Result<PasswordHash, DecodeError> {
    let algorithm = match cursor.u8()? {
        0 => HashAlgorithm::Sha256,
        1 => HashAlgorithm::Sha512,
        2 => HashAlgorithm::Md5,
        _ => return Err(DecodeError::Invalid("hash algorithm")),
    };
    Ok(PasswordHash { algorithm, bytes: cursor.bytes()?.to_vec() })
}

pub(super) fn put_user(user: &UserRecord, out: &mut BytesMut) {
    put_short(out, &user.name);
    put_password(&user.password, out);
    put_words(&user.tags, out);
    put_user_limits(user.limits, out);
}

pub(super) fn user(cursor: &mut Cursor<'_>) -> Result<UserRecord, DecodeError> {
    Ok(UserRecord {
        name: cursor.short()?,
        password: password(cursor)?,
        tags: words(cursor)?,
        limits: user_limits(cursor)?,
    })
}

pub(super) fn put_permission(record: &PermissionRecord, out: &mut BytesMut) {
    put_short(out, &record.vhost);
    put_short(out, &record.user);
    for pattern in [&record.configure, &record.write, &record.read] {
        put_bytes(out, pattern.as_bytes());
    }
}

pub(super) fn permission(cursor: &mut Cursor<'_>) -> Result<PermissionRecord, DecodeError> {
    Ok(PermissionRecord {
        vhost: cursor.short()?,
        user: cursor.short()?,
        configure: cursor.string()?,
        write: cursor.string()?,
        read: cursor.string()?,
    })
}

pub(super) fn put_topic_permission(record: &TopicPermissionRecord, out: &mut BytesMut) {
    put_short(out, &record.vhost);
    put_short(out, &record.user);
    put_short(out, &record.exchange);
    put_bytes(out, record.write.as_bytes());
    put_bytes(out, record.read.as_bytes());
}

pub(super) fn topic_permission(
    cursor: &mut Cursor<'_>,
) -> Result<TopicPermissionRecord, DecodeError> {
    Ok(TopicPermissionRecord {
        vhost: cursor.short()?,
        user: cursor.short()?,
        exchange: cursor.short()?,
        write: cursor.string()?,
        read: cursor.string()?,
    })
}
