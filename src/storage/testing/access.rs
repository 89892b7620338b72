//! Virtual hosts, users, permissions and limits: decoding gives the encoded value, and truncated
//! bytes are refused.

use crate::codec::catalog::{
    decode_command, decode_key, decode_record, encode_command, encode_key, encode_record,
};
use quorate_catalog::{
    AccessCommand as A, CatalogCommand, CatalogKey, CatalogRecord, HashAlgorithm, PasswordHash,
    PermissionRecord, TopicPermissionRecord, UserLimit, UserLimits, UserRecord, VhostLimits,
    VhostMetadata, VhostRecord, VhostUpdate,
};
use quorate_types::{CatalogIndex, QueueType, ShortString};

fn short(text: &str) -> ShortString {
    ShortString::try_from(text).unwrap()
}

fn password(algorithm: HashAlgorithm) -> PasswordHash {
    PasswordHash { algorithm, bytes: vec![1, 2, 3, 4, 5] }
}

fn user() -> UserRecord {
    UserRecord {
        name: short("u"),
        password: password(HashAlgorithm::Sha512),
        tags: vec![short("administrator"), short("x")],
        limits: UserLimits { connections_max: Some(-1), channels_max: None },
    }
}

fn metadata() -> VhostMetadata {
    VhostMetadata {
        description: "text".to_owned(),
        tags: vec![short("t")],
        default_queue_type: Some(QueueType::Quorum),
    }
}

fn permission() -> PermissionRecord {
    let [configure, write, read] = ["^a", "", ".*"].map(str::to_owned);
    PermissionRecord { vhost: short("v"), user: short("u"), configure, write, read }
}

fn topic_permission() -> TopicPermissionRecord {
    let (vhost, user, exchange) = (short("v"), short("u"), short("x"));
    let [write, read] = ["^a", ""].map(str::to_owned);
    TopicPermissionRecord { vhost, user, exchange, write, read }
}

#[test]
fn commands_round_trip() {
    let (vhost, user_name) = (short("v"), short("u"));
    let limits = VhostLimits { connections_max: Some(i64::MAX), queues_max: Some(0) };
    let mut commands = vec![
        A::AddVhost { vhost: vhost.clone(), metadata: metadata() },
        A::AddVhost { vhost: vhost.clone(), metadata: VhostMetadata::default() },
        A::UpdateVhost { vhost: vhost.clone(), update: VhostUpdate::default() },
        A::UpdateVhost {
            vhost: vhost.clone(),
            update: VhostUpdate {
                description: Some(String::new()),
                tags: Some(Vec::new()),
                default_queue_type: Some(QueueType::Classic),
            },
        },
        A::DeleteVhost { vhost: vhost.clone() },
        A::SetVhostLimits { vhost: vhost.clone(), limits },
        A::AddUser(user()),
        A::ChangePassword { user: user_name.clone(), password: password(HashAlgorithm::Md5) },
        A::SetUserTags { user: user_name.clone(), tags: Vec::new() },
        A::DeleteUser { user: user_name.clone() },
        A::SetUserLimits { user: user_name.clone(), limits: user().limits },
        A::SetPermissions(permission()),
        A::ClearPermissions { vhost: vhost.clone(), user: user_name.clone() },
        A::SetTopicPermissions(topic_permission()),
        A::SetTracing { vhost: vhost.clone(), tracing: true },
        A::SetTracing { vhost: vhost.clone(), tracing: false },
        A::SetProtection { vhost: vhost.clone(), protected: true },
    ];
    for which in [UserLimit::Connections, UserLimit::Channels, UserLimit::All] {
        commands.push(A::ClearUserLimits { user: user_name.clone(), which });
    }
    for exchange in [None, Some(short("x"))] {
        let (vhost, user) = (vhost.clone(), user_name.clone());
        commands.push(A::ClearTopicPermissions { vhost, user, exchange });
    }
    for command in commands {
        let command = CatalogCommand::Access(command);
        let bytes = encode_command(&command);
        assert_eq!(decode_command(&bytes), Ok(command));
        for end in 0..bytes.len() {
            assert!(decode_command(&bytes[..end]).is_err(), "cut at {end}");
        }
    }
}

#[test]
fn records_and_keys_round_trip() {
    let vhost = VhostRecord {
        name: short("v"),
        created: CatalogIndex(70_000),
        metadata: metadata(),
        limits: VhostLimits { connections_max: None, queues_max: Some(3) },
        tracing: true,
        protected: false,
    };
    let protected = VhostRecord { protected: true, ..vhost.clone() };
    let records = [
        CatalogRecord::Vhost(vhost),
        CatalogRecord::Vhost(protected),
        CatalogRecord::User(user()),
        CatalogRecord::Permission(permission()),
        CatalogRecord::TopicPermission(topic_permission()),
    ];
    for record in records {
        let bytes = encode_record(&record);
        assert_eq!(decode_record(&bytes), Ok(record));
        for end in 0..bytes.len() {
            assert!(decode_record(&bytes[..end]).is_err(), "cut at {end}");
        }
    }
    let (vhost, user) = (short("v"), short("u"));
    let keys = [
        CatalogKey::Permission { vhost: vhost.clone(), user: user.clone() },
        CatalogKey::TopicPermission { vhost, user, exchange: short("x") },
    ];
    for key in keys {
        assert_eq!(decode_key(&encode_key(&key)), Ok(key));
    }
}
