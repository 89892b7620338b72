//! The types that all crates share: ids, names, messages, field tables, time, reply codes, and
//! the declare arguments parsed once. Pure: no I/O, no clock, no threads.

mod arguments;
mod charter;
mod delivery;
mod exception;
mod field_table;
mod id;
mod json_size;
mod machine_version;
mod message;
mod message_filter;
mod name;
mod planted;
mod priority;
mod properties;
mod shared;
mod source;
mod time;

pub use arguments::{
    ArgumentError, DelayedRetryArguments, LeaderLocator, MS_MAX, Overflow, QueueArguments,
    QueueType, compared_arguments,
};
pub use charter::{Charter, Founding};
pub use delivery::{Counts, Numbers, RequeueCause};
pub use exception::{Exception, ReplyCode, Scope};
pub use field_table::{FieldTable, FieldTableError, FieldValue, TABLE_DEPTH_MAX, TableSize};
pub use id::{
    BootNumber, CatalogIndex, ClusterId, ConsumerId, DeliveryNumber, Epoch, GroupId, Holder, Home,
    Incarnation, LetterHome, LetterNumber, Level, LogIndex, MessageId, NodeId, QueueId, ReplicaId,
    ReplicaNumber, Sequence, SessionId, StartNumber, TaskId, Term,
};
pub use json_size::{json_bytes_max, properties_json_bytes_max};
pub use machine_version::MachineVersion;
pub use message::{Message, MessageError};
pub use message_filter::{FilterError, MessageFilter};
pub use name::{NameError, ResourceName, ShortString, VhostName};
pub use planted::PlantedBug;
pub use priority::Levels;
pub use properties::{Properties, PropertiesError, Property};
pub use source::Source;
pub use time::{Stamp, Timestamp, WallTime};
