//! The node's half of every client's work: routes, proposes, delivers, declares (DESIGN §4 to §7).

mod client;
mod connection;

pub use client::{
    BindRequest, ChannelId, ConnectionInfo, Consume, DeclareOk, Delivered, Event, ExchangeDeclare,
    GetOk, HolderRef, Pressure, Publish, PublishOutcome, QueueDeclare, Settle, Settlement,
};
pub use connection::Connection;

use quorate_types::{Exception, ShortString};

/// The broker of one node, shared by everything that serves clients.
#[derive(Clone, Debug)]
pub struct Broker;

/// What a front end needs to know to present itself.
#[derive(Clone, Debug)]
pub struct FrontSettings {
    /// Largest body taken, octets.
    pub message_bytes_max: u64,
    /// Offered in connection.tune.
    pub frame_max: u32,
    /// Offered in connection.tune.
    pub channel_max: u16,
    /// Offered in connection.tune, seconds.
    pub heartbeat_s: u16,
    /// From accept to open, ms (CONN-05).
    pub handshake_timeout_ms: u64,
    /// `server-properties`, capabilities included.
    pub server_properties: quorate_types::FieldTable,
}

impl Broker {
    /// Settings for front ends.
    #[must_use]
    pub fn front_settings(&self) -> FrontSettings {
        FrontSettings {
            message_bytes_max: 16 * 1024 * 1024,
            frame_max: 131_072,
            channel_max: 2047,
            heartbeat_s: 60,
            handshake_timeout_ms: 10_000,
            server_properties: quorate_types::FieldTable::default(),
        }
    }

    /// Checks a password; `loopback` tells whether the client's address is one (ACL-24).
    #[must_use]
    pub fn authenticate(&self, user: &str, password: &[u8], loopback: bool) -> bool {
        user == "guest" && password == b"guest" && loopback
    }

    /// Opens a connection (`connection.open`), after its user has been authenticated.
    ///
    /// # Errors
    /// 530 as CONN-20 lists.
    pub fn connect(&self, info: ConnectionInfo) -> Result<Connection, Exception> {
        let _ = info;
        Err(Exception::new(quorate_types::ReplyCode::InternalError, "not there"))
    }

    /// Alarms in force, for a connection that begins to publish (ALM-02): the reason.
    #[must_use]
    pub fn alarm(&self) -> Option<String> {
        None
    }

    /// The name that consumers and queues are given: `prefix` and 22 characters of URL-safe
    /// base64 of 16 random octets (QUE-06, CON-01).
    #[must_use]
    pub fn generated_name(&self, prefix: &str) -> ShortString {
        ShortString::try_from(prefix).unwrap_or_default()
    }
}
