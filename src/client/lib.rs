//! The interface between a front end and the broker: requests of clients, answers and events, the memory
//! that both count for a client, and the traits through which a front end calls the broker.
//!
//! The broker serves these requests with RocksDB and openraft below it. A front end needs neither,
//! so this floor has neither, and a front end's tests and fuzz targets build without them.

pub mod memory;

mod broker;

mod event;
mod operation;
mod report;
mod request;
mod settings;
mod shown;

pub use broker::{Broker, Connection};
pub use event::Event;
pub use operation::{Answer, Operation};
pub use report::{ChannelReport, ChannelTraffic, SocketReport, TlsReport};
pub use request::{
    BindRequest, ChannelId, ConnectionInfo, Consume, DeclareOk, Delivered, ExchangeDeclare, GetOk,
    HolderRef, Pressure, Publish, PublishOutcome, QueueDeclare, Settle, Settlement,
};
pub use settings::FrontSettings;
pub use shown::delivery_properties;
