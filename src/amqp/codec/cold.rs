//! All other methods, generated from one list of their fields (AMQP 0-9-1,
//! `amqp0-9-1.extended.xml`).
//!
//! They are not taken from amq-protocol, because its types leave out fields that rules mention
//! (`prefetch-size` of basic.qos, QOS-01; the ticket of access.request-ok, CHN-09), sort tables and
//! drop their duplicates, and because its errors do not distinguish 501 from 502. The tests
//! compare ids, names and bytes with amq-protocol, and `quorate perf` uses it.

#![expect(missing_docs, reason = "the names are the protocol's own")]

use crate::codec::{
    method::MethodId,
    reader::{FieldError, Reader, Writer},
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_types::{FieldTable, ShortString};

/// A type of method fields.
trait Field: Sized {
    /// Reads what a transcript says.
    #[cfg(test)]
    fn parse(text: Option<&str>) -> Self;
    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError>;
    fn write(&self, writer: &mut Writer<'_>);
}

impl Field for u8 {
    #[cfg(test)]
    fn parse(text: Option<&str>) -> Self {
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }
    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        reader.u8()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.bytes().put_u8(*self);
    }
}

impl Field for u16 {
    #[cfg(test)]
    fn parse(text: Option<&str>) -> Self {
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }
    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        reader.u16()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.bytes().put_u16(*self);
    }
}

impl Field for u32 {
    #[cfg(test)]
    fn parse(text: Option<&str>) -> Self {
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }
    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        reader.u32()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.bytes().put_u32(*self);
    }
}

impl Field for bool {
    #[cfg(test)]
    fn parse(text: Option<&str>) -> Self {
        text == Some("true")
    }
    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        reader.bit()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.bit(*self);
    }
}

impl Field for ShortString {
    #[cfg(test)]
    fn parse(text: Option<&str>) -> Self {
        ShortString::try_from(text.unwrap_or_default()).unwrap_or_default()
    }
    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        reader.short_string()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.short_string(self);
    }
}

/// A long string.
impl Field for Bytes {
    #[cfg(test)]
    fn parse(text: Option<&str>) -> Self {
        Bytes::from(text.unwrap_or_default().replace("\\0", "\0"))
    }
    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        reader.long_string()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.long_string(self);
    }
}

impl Field for FieldTable {
    #[cfg(test)]
    fn parse(text: Option<&str>) -> Self {
        text.map(crate::transcript::table).unwrap_or_default()
    }
    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        reader.table()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        self.encode(writer.bytes());
    }
}

macro_rules! classes {
    ($(
        $class:ident $Class:ident $class_id:literal {
            $($Method:ident $name:literal $method_id:literal { $($field:ident: $kind:ty),* })*
        }
    )*) => {
        /// A method that is not among the hot ones.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Cold {
            $($Class($class::Method),)*
        }

        impl Cold {
            /// Its class and method id.
            #[must_use]
            pub fn id(&self) -> MethodId {
                match self {
                    $($(Self::$Class($class::Method::$Method(_)) => $class::$Method::ID,)*)*
                }
            }

            /// Its name, such as `queue.declare`.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $($(Self::$Class($class::Method::$Method(_)) => $class::$Method::NAME,)*)*
                }
            }

            /// Reads what a transcript says.
            #[cfg(test)]
            pub(crate) fn parse(name: &str, words: &crate::transcript::Words) -> Option<Self> {
                match name {
                    $($($class::$Method::NAME => Some($class::$Method::parse(words).into()),)*)*
                    _ => None,
                }
            }

            /// What a transcript says of the fields.
            #[cfg(test)]
            pub(crate) fn fields(&self) -> String {
                match self {
                    $($(Self::$Class($class::Method::$Method(method)) => format!("{method:?}"),)*)*
                }
            }

            /// Reads the fields; `None` if there is no such method.
            pub(crate) fn read(
                class: u16,
                method: u16,
                reader: &mut Reader<'_>,
            ) -> Result<Option<Self>, FieldError> {
                Ok(Some(match (class, method) {
                    $($(($class_id, $method_id) => $class::$Method::read(reader)?.into(),)*)*
                    _ => return Ok(None),
                }))
            }

            /// Appends the fields.
            pub(crate) fn write(&self, out: &mut BytesMut) {
                let writer = &mut Writer::new(out);
                match self {
                    $($(Self::$Class($class::Method::$Method(method)) => method.write(writer),)*)*
                }
            }
        }

        $(
            #[doc = concat!("Class `", stringify!($class), "`.")]
            pub mod $class {
                #[allow(unused_imports, reason = "not every class has fields of every type")]
                use super::{Bytes, Cold, Field, FieldError, FieldTable, MethodId, Reader,
                    ShortString, Writer};

                /// A method of this class.
                #[derive(Clone, Debug, PartialEq, Eq)]
                pub enum Method {
                    $($Method($Method),)*
                }

                $(
                    #[doc = concat!("`", stringify!($class), ".", $name, "`.")]
                    #[derive(Clone, Debug, Default, PartialEq, Eq)]
                    pub struct $Method {
                        $(pub $field: $kind,)*
                    }

                    impl $Method {
                        /// Class and method.
                        pub const ID: MethodId =
                            MethodId { class: $class_id, method: $method_id };

                        /// As the protocol's documents name it.
                        pub const NAME: &'static str = concat!(stringify!($class), ".", $name);

                        #[cfg(test)]
                        #[allow(unused_variables, reason = "some methods have no fields")]
                        pub(super) fn parse(words: &crate::transcript::Words) -> Self {
                            Self { $($field: Field::parse(words.get(stringify!($field))),)* }
                        }

                        #[allow(unused_variables, reason = "some methods have no fields")]
                        pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
                            Ok(Self { $($field: Field::read(reader)?,)* })
                        }

                        #[allow(unused_variables, reason = "some methods have no fields")]
                        pub(super) fn write(&self, writer: &mut Writer<'_>) {
                            $(self.$field.write(writer);)*
                        }
                    }

                    impl From<$Method> for Cold {
                        fn from(method: $Method) -> Self {
                            Self::$Class(Method::$Method(method))
                        }
                    }
                )*
            }
        )*
    };
}

classes! {
    connection Connection 10 {
        Start "start" 10 { version_major: u8, version_minor: u8, server_properties: FieldTable, mechanisms: Bytes, locales: Bytes }
        StartOk "start-ok" 11 { client_properties: FieldTable, mechanism: ShortString, response: Bytes, locale: ShortString }
        Secure "secure" 20 { challenge: Bytes }
        SecureOk "secure-ok" 21 { response: Bytes }
        Tune "tune" 30 { channel_max: u16, frame_max: u32, heartbeat: u16 }
        TuneOk "tune-ok" 31 { channel_max: u16, frame_max: u32, heartbeat: u16 }
        Open "open" 40 { virtual_host: ShortString, capabilities: ShortString, insist: bool }
        OpenOk "open-ok" 41 { known_hosts: ShortString }
        Close "close" 50 { reply_code: u16, reply_text: ShortString, class_id: u16, method_id: u16 }
        CloseOk "close-ok" 51 {}
        Blocked "blocked" 60 { reason: ShortString }
        Unblocked "unblocked" 61 {}
        UpdateSecret "update-secret" 70 { new_secret: Bytes, reason: ShortString }
        UpdateSecretOk "update-secret-ok" 71 {}
    }
    channel Channel 20 {
        Open "open" 10 { out_of_band: ShortString }
        OpenOk "open-ok" 11 { channel_id: Bytes }
        Flow "flow" 20 { active: bool }
        FlowOk "flow-ok" 21 { active: bool }
        Close "close" 40 { reply_code: u16, reply_text: ShortString, class_id: u16, method_id: u16 }
        CloseOk "close-ok" 41 {}
    }
    access Access 30 {
        Request "request" 10 { realm: ShortString, exclusive: bool, passive: bool, active: bool, write: bool, read: bool }
        RequestOk "request-ok" 11 { ticket: u16 }
    }
    exchange Exchange 40 {
        Declare "declare" 10 { ticket: u16, exchange: ShortString, kind: ShortString, passive: bool, durable: bool, auto_delete: bool, internal: bool, nowait: bool, arguments: FieldTable }
        DeclareOk "declare-ok" 11 {}
        Delete "delete" 20 { ticket: u16, exchange: ShortString, if_unused: bool, nowait: bool }
        DeleteOk "delete-ok" 21 {}
        Bind "bind" 30 { ticket: u16, destination: ShortString, source: ShortString, routing_key: ShortString, nowait: bool, arguments: FieldTable }
        BindOk "bind-ok" 31 {}
        Unbind "unbind" 40 { ticket: u16, destination: ShortString, source: ShortString, routing_key: ShortString, nowait: bool, arguments: FieldTable }
        UnbindOk "unbind-ok" 51 {}
    }
    queue Queue 50 {
        Declare "declare" 10 { ticket: u16, queue: ShortString, passive: bool, durable: bool, exclusive: bool, auto_delete: bool, nowait: bool, arguments: FieldTable }
        DeclareOk "declare-ok" 11 { queue: ShortString, message_count: u32, consumer_count: u32 }
        Bind "bind" 20 { ticket: u16, queue: ShortString, exchange: ShortString, routing_key: ShortString, nowait: bool, arguments: FieldTable }
        BindOk "bind-ok" 21 {}
        Purge "purge" 30 { ticket: u16, queue: ShortString, nowait: bool }
        PurgeOk "purge-ok" 31 { message_count: u32 }
        Delete "delete" 40 { ticket: u16, queue: ShortString, if_unused: bool, if_empty: bool, nowait: bool }
        DeleteOk "delete-ok" 41 { message_count: u32 }
        Unbind "unbind" 50 { ticket: u16, queue: ShortString, exchange: ShortString, routing_key: ShortString, arguments: FieldTable }
        UnbindOk "unbind-ok" 51 {}
    }
    basic Basic 60 {
        Qos "qos" 10 { prefetch_size: u32, prefetch_count: u16, global: bool }
        QosOk "qos-ok" 11 {}
        Consume "consume" 20 { ticket: u16, queue: ShortString, consumer_tag: ShortString, no_local: bool, no_ack: bool, exclusive: bool, nowait: bool, arguments: FieldTable }
        ConsumeOk "consume-ok" 21 { consumer_tag: ShortString }
        Cancel "cancel" 30 { consumer_tag: ShortString, nowait: bool }
        CancelOk "cancel-ok" 31 { consumer_tag: ShortString }
        Get "get" 70 { ticket: u16, queue: ShortString, no_ack: bool }
        GetEmpty "get-empty" 72 { cluster_id: ShortString }
        RecoverAsync "recover-async" 100 { requeue: bool }
        Recover "recover" 110 { requeue: bool }
        RecoverOk "recover-ok" 111 {}
    }
    confirm Confirm 85 {
        Select "select" 10 { nowait: bool }
        SelectOk "select-ok" 11 {}
    }
    tx Tx 90 {
        Select "select" 10 {}
        SelectOk "select-ok" 11 {}
        Commit "commit" 20 {}
        CommitOk "commit-ok" 21 {}
        Rollback "rollback" 30 {}
        RollbackOk "rollback-ok" 31 {}
    }
}
