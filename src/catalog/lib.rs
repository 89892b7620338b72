//! The catalog as a pure state machine: nodes, members, placements, virtual hosts, exchanges,
//! bindings, queue entries, policies; and routing by them. Every node holds a full copy and routes
//! publishes by it (DESIGN §2).

mod command;
mod objects;
mod output;
mod record;

mod machine;

mod access;
mod access_command;
mod limits;
mod password;
mod pattern;
mod permission;
mod user;
mod vhost;

mod alternate;
mod binding;
mod exchange;
mod node;
mod queue_entry;

mod last_resort;
mod member;
mod member_command;
mod membership;
mod placement_plan;
mod replica_placement;
mod replicas;

mod definitions_export;
mod definitions_fields;
mod definitions_import;
mod definitions_table;
mod definitions_user;
mod parameter;
mod policy;
mod policy_definition;
mod policy_parse;
mod policy_pattern;
mod task;
mod task_bounds;
mod term;

mod denial;
mod equivalence;
mod placement;
pub mod refusal;
mod server_name;

mod choice;
mod delayed;
mod headers;
mod route;
mod targets;
mod topic;

mod dry_run;
mod setting_source;

mod digest;
mod named;

pub use access::{Access, Resource, Who, access_refused};
pub use access_command::AccessCommand;
pub use command::{CatalogCommand, CatalogEntry, CatalogReply};
pub use definitions_import::{Definitions, DefinitionsError, Step};
pub use definitions_table::{
    ArgumentsError, from_json as arguments_from_json, to_json as arguments_to_json,
};
pub use definitions_user::HashPassword;
pub use delayed::{DELAY, DELAY_MAX_MS, after_delay, delay_config, delay_of, delays_for};
pub use denial::{Denial, MemberDenial, TaskDenial};
pub use dry_run::{Outcome, QueueChange, SettingChange};
pub use equivalence::{Redeclared, check_owner, equivalent};
pub use exchange::{check_deletable, is_reserved};
pub use limits::{Limit, UserLimit, UserLimits, VhostLimits, reached};
pub use machine::Catalog;
pub use member::{ForgottenRecord, MemberRecord, MemberState};
pub use member_command::{MemberCommand, Newcomer};
pub use node::FORMER_BOOTS_MAX;
pub use objects::{
    Binding, ClusterShape, ConnectionId, Destination, ExchangeRecord, ExchangeType, QueueEntry,
};
pub use output::{CatalogEvent, CatalogOutput};
pub use parameter::{
    CLUSTER_NAME, CommonSettings, PARAMETER_BYTES_MAX, ParameterError, ParameterName,
    ParameterRecord,
};
pub use password::{HashAlgorithm, PasswordHash};
pub use pattern::Pattern;
pub use permission::Rights;
pub use placement_plan::Presence;
pub use policy::{ApplyTo, InForce, PolicyKind, PolicyName, PolicyRecord};
pub use policy_definition::{
    Merge, PolicyDefinition, PolicyKey, PolicyValue, effective, leader_locator, smaller_limit,
};
pub use policy_parse::{PolicyError, PolicyText};
pub use policy_pattern::{POLICY_PATTERN_BYTES_MAX, is_pattern_of};
pub use queue_entry::{check_queue_properties, resolve_queue_type};
pub use record::{
    BindingId, CatalogKey, CatalogRecord, CatalogRecordError, CatalogState, NodeEntry,
    PermissionRecord, TopicPermissionRecord, UserRecord, VhostRecord,
};
pub use replica_placement::{CATALOG_VOTERS_MAX, MOVES_MAX, PlacementRecord};
pub use replicas::{Flaws, Host, Hosts, Replicas};
pub use route::{Locality, RouteError, RouteRequest};
pub use server_name::{bound_position, server_given_name, server_named_queue};
pub use setting_source::{Setting, SettingSource};
pub use task::{
    ENDED_TASKS_MAX, TaskCommand, TaskControl, TaskKind, TaskOrder, TaskRecord, TaskState,
    TaskTarget, filter_of,
};
pub use task_bounds::{QUEUE_TASKS_MAX, TASKS_MAX, VHOST_TASKS_MAX};
pub use user::USER_TAGS_MAX;
pub use vhost::{VhostMetadata, VhostUpdate};
