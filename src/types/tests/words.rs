//! Names, exceptions, times and ids.

#![expect(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use proptest::prelude::*;
use quorate_types::{
    Exception, GroupId, Home, NameError, NodeId, QueueId, ReplyCode, ResourceName, Scope,
    ShortString, Timestamp,
};

proptest! {
    /// A short string is at most 255 bytes of UTF-8, and nothing else.
    #[test]
    fn a_short_string_is_short_and_utf8(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let taken = ShortString::from_bytes(Bytes::from(bytes.clone()));
        let expected = bytes.len() <= 255 && std::str::from_utf8(&bytes).is_ok();
        prop_assert_eq!(taken.is_ok(), expected);
        if let Ok(taken) = taken {
            prop_assert_eq!(taken.as_bytes(), &bytes[..]);
            prop_assert_eq!(taken.as_str().as_bytes(), &bytes[..]);
            prop_assert_eq!(taken.detached(), taken);
        }
    }

    /// CHN-12: line breaks go, the rest stays.
    #[test]
    fn line_breaks_are_taken_out_of_names(text in "[a-c\r\n\u{e4}]{0,30}") {
        let name = ShortString::try_from(text.as_str()).unwrap().without_line_breaks();
        prop_assert_eq!(name.as_str(), text.replace(['\r', '\n'], ""));
    }

    /// CONN-24: a reply text is a short string, cut at a character's border.
    #[test]
    fn a_reply_text_is_never_longer_than_255_bytes(text in "[a\u{e4}\u{20ac}\u{1f407}]{0,120}") {
        let told = Exception::new(ReplyCode::NotFound, text.clone()).reply_text();
        prop_assert!(told.len() <= 255);
        let whole = format!("NOT_FOUND - {text}");
        prop_assert!(whole.starts_with(&told));
        prop_assert!(told.len() > 251 || told == whole);
    }
}

#[test]
fn names_that_are_none_say_why() {
    assert_eq!(ShortString::try_from("x".repeat(256)), Err(NameError::TooLong(256)));
    assert!(ShortString::try_from("x".repeat(255)).is_ok());
    let bytes = Bytes::from_static(&[0xc3]);
    assert_eq!(ShortString::from_bytes(bytes), Err(NameError::NotUtf8));
}

#[test]
fn a_resource_is_named_as_rabbitmq_names_it() {
    let name =
        ResourceName { vhost: ShortString::from_static("/"), name: ShortString::from_static("q") };
    assert_eq!(name.to_string(), "'q' in vhost '/'");
}

#[test]
fn conn_25_soft_codes_close_the_channel_and_hard_ones_the_connection() {
    use ReplyCode as R;
    let soft = [
        (R::ContentTooLarge, 311, "CONTENT_TOO_LARGE"),
        (R::NoRoute, 312, "NO_ROUTE"),
        (R::NoConsumers, 313, "NO_CONSUMERS"),
        (R::AccessRefused, 403, "ACCESS_REFUSED"),
        (R::NotFound, 404, "NOT_FOUND"),
        (R::ResourceLocked, 405, "RESOURCE_LOCKED"),
        (R::PreconditionFailed, 406, "PRECONDITION_FAILED"),
    ];
    let hard = [
        (R::ConnectionForced, 320, "CONNECTION_FORCED"),
        (R::InvalidPath, 402, "INVALID_PATH"),
        (R::FrameError, 501, "FRAME_ERROR"),
        (R::SyntaxError, 502, "SYNTAX_ERROR"),
        (R::CommandInvalid, 503, "COMMAND_INVALID"),
        (R::ChannelError, 504, "CHANNEL_ERROR"),
        (R::UnexpectedFrame, 505, "UNEXPECTED_FRAME"),
        (R::ResourceError, 506, "RESOURCE_ERROR"),
        (R::NotAllowed, 530, "NOT_ALLOWED"),
        (R::NotImplemented, 540, "NOT_IMPLEMENTED"),
        (R::InternalError, 541, "INTERNAL_ERROR"),
    ];
    for (codes, scope) in [(&soft[..], Scope::Channel), (&hard[..], Scope::Connection)] {
        for (code, number, name) in codes {
            assert_eq!((code.number(), code.name()), (*number, *name));
            assert_eq!(code.scope(), scope, "{name}");
        }
    }
}

#[test]
fn the_replicated_clock_neither_overflows_nor_goes_below_zero() {
    assert_eq!(Timestamp(u64::MAX).plus_ms(1), Timestamp(u64::MAX));
    assert_eq!(Timestamp(5).ms_since(Timestamp(7)), 0);
    assert_eq!(Timestamp(7).ms_since(Timestamp(5)), 2);
}

#[test]
fn queue_ids_are_ordered_by_home_then_by_creation() {
    let id = |home, index, position| QueueId { home, index, position };
    let (group, node) = (Home::Group(GroupId(2)), Home::Node(NodeId(1)));
    let ids = [id(group, 1, 9), id(group, 2, 0), id(group, 2, 1), id(node, 0, 0)];
    assert!(ids.is_sorted());
    assert_eq!(ids.map(|id| id.to_string()), ["g2.1.9", "g2.2.0", "g2.2.1", "n1.0.0"]);
}
