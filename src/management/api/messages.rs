//! Messages that are published and got over HTTP: `exchanges/{vhost}/{exchange}/publish` and
//! `queues/{vhost}/{queue}/get`.

use crate::api::body::Fields;
use crate::api::call::{Answer, Api, Call};
use crate::api::client::{AckMode, on_connection};
use crate::api::exchanges::exchange_name;
use crate::api::json;
use crate::api::refusal::{Refusal, bad_request};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use quorate_client::{Broker as _, ChannelId, GetOk, Publish, delivery_properties};
use quorate_types::{Properties, ShortString};
use serde_json::{Value, json};

/// Messages of one get, at most.
const COUNT_MAX: usize = 10_000;
/// Bytes of bodies of one get in JSON, about: no more messages are got above that.
const GOT_BYTES_MAX: usize = 16 << 20;

/// Bytes of a frame with a content header besides the properties (AMQP 0-9-1, section 4.2.6.1).
const HEADER_FRAME_BYTES: usize = 22;

/// A message to publish, as its request says.
#[derive(Debug, PartialEq)]
struct Given {
    routing_key: ShortString,
    properties: Properties,
    body: Bytes,
}

fn given(fields: &Fields, bytes_max: u64, frame_max: usize) -> Result<Given, Refusal> {
    let routing_key = json::short("routing_key", fields.text("routing_key")?)?;
    fields.required("properties")?;
    let properties = json::to_properties(&fields.object("properties")?)?;
    // They are delivered in one frame, which clients may refuse if it is larger.
    if properties.raw.len() + HEADER_FRAME_BYTES > frame_max {
        return bad_request(format!("the properties do not fit into a frame of {frame_max} bytes"));
    }
    let Some(payload) = fields.required("payload")?.as_str() else {
        return bad_request("payload_not_string");
    };
    let body = match fields.text("payload_encoding")? {
        "string" => payload.as_bytes().to_vec(),
        "base64" => STANDARD
            .decode(payload)
            .map_err(|_| Refusal::BadRequest(format!("{{not_base64,{payload:.40}}}")))?,
        other => return bad_request(format!("{{unsupported_encoding,{other}}}")),
    };
    if body.len() as u64 > bytes_max {
        let text = format!("message size {} is larger than max size {bytes_max}", body.len());
        return bad_request(text);
    }
    Ok(Given { routing_key, properties, body: body.into() })
}

/// Publishes a message, and waits until it is taken.
pub(crate) async fn publish(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhost = call.vhost(api)?;
    let exchange = exchange_name(call)?;
    let settings = api.broker.front_settings();
    let frame_max = settings.frame_max as usize;
    let given = given(&call.fields()?, settings.max_message_size, frame_max)?;
    // Over AMQP the client would not be read (ALM-03).
    if let Some(alarm) = api.broker.alarm() {
        return Err(Refusal::Unavailable(format!("publishing is blocked: {alarm}")));
    }
    let publish = Publish {
        channel: ChannelId { number: 1, opened: 0 },
        confirm: Some(1),
        exchange,
        routing_key: given.routing_key,
        properties: given.properties,
        body: given.body,
        mandatory: true,
    };
    let published = on_connection(&api.broker, &call.caller, &vhost, |connection| async move {
        let routed = connection.publish(publish).await;
        (connection, routed)
    });
    let routed = published.await.map_err(|exception| Refusal::of_channel(&exception))?;
    Ok(Answer::object(json!({ "routed": routed })))
}

/// What a request asks of the messages that it gets.
#[derive(Debug, PartialEq)]
struct Wanted {
    count: usize,
    mode: AckMode,
    base64: bool,
    truncate: Option<usize>,
}

fn wanted(fields: &Fields) -> Result<Wanted, Refusal> {
    let mode = match fields.text("ackmode")? {
        "ack_requeue_true" => AckMode::Requeue,
        "ack_requeue_false" => AckMode::Ack,
        "reject_requeue_true" => AckMode::RejectRequeue,
        "reject_requeue_false" => AckMode::Reject,
        other => {
            return bad_request(format!(
                "Invalid ackmode value: {other}. Valid values are: ack_requeue_true, \
                 ack_requeue_false, reject_requeue_true, reject_requeue_false"
            ));
        }
    };
    fields.required("count")?;
    let natural = |name: &str| match fields.optional_integer(name)?.map(usize::try_from) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) => bad_request(format!("{name} must not be negative")),
    };
    let base64 = match fields.text("encoding")? {
        "auto" => false,
        "base64" => true,
        _ => return bad_request("Unsupported encoding. Please use auto or base64."),
    };
    let count = natural("count")?.unwrap_or_default().min(COUNT_MAX);
    Ok(Wanted { count, mode, base64, truncate: natural("truncate")? })
}

/// Gets messages.
pub(crate) async fn get(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let queue = call.resource(api, "queue")?;
    let wanted = wanted(&call.fields()?)?;
    let (name, bounds, mode) = (queue.name, (wanted.count, GOT_BYTES_MAX), wanted.mode);
    let got = on_connection(&api.broker, &call.caller, &queue.vhost, |connection| async move {
        let got = connection.get(&name, bounds, mode).await;
        (connection, got)
    });
    let got = got.await.map_err(|exception| Refusal::of_channel(&exception))?;
    let taken = match wanted.mode {
        AckMode::Requeue | AckMode::RejectRequeue => false,
        AckMode::Ack | AckMode::Reject => true,
    };
    Ok(Answer::messages(got.iter().map(|got| message(got, &wanted)).collect(), taken))
}

/// A message as it was got.
fn message(got: &GetOk, wanted: &Wanted) -> Value {
    let properties = json::properties(&delivery_properties(&got.message, got.counts));
    let properties = properties.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot decode stored message properties");
        json!({})
    });
    let body = &got.message.body;
    let shown = wanted.truncate.map_or(body.len(), |most| most.min(body.len()));
    let (payload, encoding) = json::payload(body.get(..shown).unwrap_or_default(), wanted.base64);
    json!({
        "payload_bytes": body.len(),
        "redelivered": got.redelivered,
        "exchange": got.message.exchange.as_str(),
        "routing_key": got.message.routing_key.as_str(),
        "message_count": got.ready,
        "properties": properties,
        "payload": payload,
        "payload_encoding": encoding,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use quorate_client::HolderRef;
    use quorate_types::{GroupId, Holder, Home, Message, NodeId, Sequence, SessionId, StartNumber};

    fn fields(body: &Value) -> Fields {
        Fields::parse(body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_message_is_given_as_text_or_in_base64() {
        let body = |payload: &str, encoding: &str| {
            let body = json!({ "routing_key": "k", "properties": {}, "payload": payload,
                "payload_encoding": encoding });
            given(&fields(&body), 10, 4_096).map(|given| given.body)
        };
        assert_eq!(body("hi", "string"), Ok(Bytes::from_static(b"hi")));
        assert_eq!(body("aGk=", "base64"), Ok(Bytes::from_static(b"hi")));
        for (payload, encoding) in [("a?", "base64"), ("hi", "hex"), ("01234567890", "string")] {
            assert!(matches!(body(payload, encoding), Err(Refusal::BadRequest(_))), "{payload}");
        }
        let whole = json!({ "routing_key": "k", "properties": {}, "payload": "p",
            "payload_encoding": "string" });
        for name in ["routing_key", "properties", "payload", "payload_encoding"] {
            let mut part = whole.clone();
            part.as_object_mut().unwrap().remove(name);
            let refused = given(&fields(&part), 10, 4_096);
            assert_eq!(refused, bad_request(format!("{{key_missing,{name}}}")));
        }
    }

    #[test]
    fn a_get_says_what_becomes_of_the_messages() {
        let parse = |mode: &str, count: Value, encoding: &str| {
            let body = json!({ "ackmode": mode, "count": count, "encoding": encoding,
                "truncate": "50" });
            wanted(&fields(&body))
        };
        assert_eq!(
            parse("ack_requeue_false", json!("3"), "auto"),
            Ok(Wanted { count: 3, mode: AckMode::Ack, base64: false, truncate: Some(50) })
        );
        for (mode, count, encoding) in [
            ("ack", json!(1), "auto"),
            ("ack_requeue_true", json!(-1), "auto"),
            ("ack_requeue_true", json!("x"), "auto"),
            ("ack_requeue_true", json!(1), "utf8"),
            ("ack_requeue_true", Value::Null, "auto"),
        ] {
            assert!(parse(mode, count, encoding).is_err());
        }
    }

    /// As in the golden reply.
    #[test]
    fn a_message_is_shown_as_rabbitmq_shows_it() {
        let holder = HolderRef {
            home: Home::Group(GroupId(1)),
            holder: Holder::Get(SessionId { node: NodeId(1), start: StartNumber(1) }, Sequence(1)),
        };
        let message_got = Message {
            routing_key: ShortString::from_static("t1"),
            body: Bytes::from_static(b"hi"),
            ..Message::default()
        };
        let got =
            GetOk { holder, redelivered: false, counts: None, message: message_got, ready: 0 };
        let wanted = Wanted { count: 1, mode: AckMode::Requeue, base64: false, truncate: Some(1) };
        assert_eq!(
            message(&got, &wanted),
            json!({
                "payload_bytes": 2, "redelivered": false, "exchange": "", "routing_key": "t1",
                "message_count": 0, "properties": {}, "payload": "h", "payload_encoding": "string",
            })
        );
    }
}
