//! The lines of a transcript, read and written.

use crate::codec::{
    cold::Cold,
    content,
    frame::{self, Frame, Kind},
    hot,
    method::Method,
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_client::{
    Answer, ChannelId, DeclareOk, Delivered, Event, GetOk, HolderRef, Publish, PublishOutcome,
    Settle,
};
use quorate_types::{
    ConsumerId, Counts, DeliveryNumber, Exception, FieldTable, FieldValue, GroupId, Holder, Home,
    Message, NodeId, ReplyCode, Sequence, SessionId, ShortString, StartNumber,
};

/// Words, and behind them settings `name=value` and flags.
#[derive(Debug, Default)]
pub(crate) struct Words {
    plain: Vec<String>,
    named: Vec<(String, String)>,
}

impl Words {
    /// Blanks separate words, except within quotes and braces.
    pub(crate) fn of(text: &str) -> Self {
        let mut words = Self::default();
        for word in split(text, ' ').into_iter().filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((name, value)) => words.named.push((name.replace('-', "_"), unquoted(value))),
                None => words.plain.push(unquoted(&word)),
            }
        }
        words
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let flag = self.plain.iter().any(|word| word.replace('-', "_") == name).then_some("true");
        self.named.iter().find(|(key, _)| key == name).map(|(_, value)| &value[..]).or(flag)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.get(name).and_then(|value| value.parse().ok())
    }

    fn short(&self, name: &str) -> ShortString {
        short(self.get(name).unwrap_or_default())
    }

    fn plain(&self, at: usize) -> &str {
        self.plain.get(at).map(String::as_str).unwrap_or_default()
    }
}

fn split(text: &str, separator: char) -> Vec<String> {
    let (mut words, mut quoted, mut depth) = (vec![String::new()], false, 0);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => depth -= 1,
            _ => {}
        }
        if c == separator && !quoted && depth == 0 {
            words.push(String::new());
        } else {
            words.last_mut().unwrap().push(c);
        }
    }
    words
}

fn unquoted(text: &str) -> String {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text).to_owned()
}

fn short(text: &str) -> ShortString {
    ShortString::try_from(text).unwrap()
}

/// Parses a table, written as `{a=1,b=text,c=true,d={…}}`.
pub(crate) fn table(text: &str) -> FieldTable {
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap();
    let fields = split(inner, ',').into_iter().filter(|field| !field.is_empty()).map(|field| {
        let (name, value) = field.split_once('=').unwrap();
        let value = match (value, value.parse()) {
            (_, Ok(number)) => FieldValue::I32(number),
            ("true" | "false", _) => FieldValue::Bool(value == "true"),
            ("[]", _) => FieldValue::Array(Vec::new()),
            _ if value.starts_with('{') => FieldValue::Table(table(value)),
            _ => FieldValue::text(&unquoted(value)),
        };
        (short(name), value)
    });
    FieldTable(fields.collect())
}

/// Channel 3 that was opened as the first one is `3:0`; without a colon, `1` is `1:0`.
fn channel_id(text: &str) -> ChannelId {
    let (number, opened) = text.split_once(':').unwrap_or((text, "0"));
    ChannelId { number: number.parse().unwrap(), opened: opened.parse().unwrap() }
}

pub(super) fn channel(id: ChannelId) -> String {
    format!("{}:{}", id.number, id.opened)
}

/// Frames that a client sends: `CHANNEL what …`.
pub(super) fn frames(line: &str) -> Vec<Frame> {
    let words = Words::of(line);
    let channel: u16 = words.plain(0).parse().unwrap();
    let mut out = BytesMut::new();
    match words.plain(1) {
        "header" => {
            let size = words.number("size").unwrap_or(0);
            let class: u16 = words.number("class").unwrap_or(60);
            frame::put_with(&mut out, Kind::Header, channel, |out| {
                out.put_u16(class);
                out.put_u16(0);
                out.put_u64(size);
                out.put_slice(&properties(&words));
            });
        }
        "body" => frame::put(&mut out, Kind::Body, channel, words.plain(2).as_bytes()),
        "heartbeat" => frame::put(&mut out, Kind::Heartbeat, channel, words.plain(2).as_bytes()),
        "content" => {
            let body = words.plain(2).as_bytes();
            content::put(&mut out, channel, &properties(&words), body, super::FRAME_MAX);
        }
        "bytes" => {
            let bytes: Vec<u8> = words.plain.iter().skip(2).map(|n| n.parse().unwrap()).collect();
            frame::put(&mut out, Kind::Method, channel, &bytes);
        }
        name => method(name, &words).put(&mut out, channel),
    }
    let mut frames = Vec::new();
    while let Some(frame) = frame::take(&mut out, 1 << 20).unwrap() {
        frames.push(frame);
    }
    frames
}

fn method(name: &str, words: &Words) -> Method {
    let tag = words.number("tag").unwrap_or(0);
    let (multiple, requeue) = (words.flag("multiple"), words.flag("requeue"));
    let (exchange, routing_key) = (words.short("exchange"), words.short("key"));
    match name {
        "basic.publish" => Method::Publish(hot::Publish {
            exchange,
            routing_key,
            mandatory: words.flag("mandatory"),
            immediate: words.flag("immediate"),
        }),
        "basic.deliver" => Method::Deliver(hot::Deliver::default()),
        "basic.get-ok" => Method::GetOk(hot::GetOk::default()),
        "basic.return" => Method::Return(hot::Return::default()),
        "basic.ack" => Method::Ack(hot::Ack { delivery_tag: tag, multiple }),
        "basic.nack" => Method::Nack(hot::Nack { delivery_tag: tag, multiple, requeue }),
        "basic.reject" => Method::Reject(hot::Reject { delivery_tag: tag, requeue }),
        name => {
            let cold = Cold::parse(name, words);
            Method::Cold(Box::new(cold.unwrap_or_else(|| panic!("no method {name}"))))
        }
    }
}

/// Flags and properties: `headers={…}`, `reply-to=…`, `expiration=…`, or `raw=` bytes separated by commas.
fn properties(words: &Words) -> Bytes {
    let mut raw = BytesMut::new();
    if let Some(bytes) = words.get("raw") {
        bytes.split(',').for_each(|byte| raw.put_u8(byte.parse().unwrap()));
        return raw.freeze();
    }
    let headers = words.get("headers");
    let texts = [(9, words.get("reply_to")), (8, words.get("expiration"))];
    let flags = texts.map(|(bit, text)| u16::from(text.is_some()) << bit);
    raw.put_u16(flags.iter().sum::<u16>() | u16::from(headers.is_some()) << 13);
    if let Some(headers) = headers {
        table(headers).encode(&mut raw);
    }
    for text in texts.into_iter().filter_map(|(_, text)| text) {
        raw.put_u8(text.len().try_into().unwrap());
        raw.put_slice(text.as_bytes());
    }
    raw.freeze()
}

fn code(number: &str) -> ReplyCode {
    match number {
        "320" => ReplyCode::ConnectionForced,
        "403" => ReplyCode::AccessRefused,
        "404" => ReplyCode::NotFound,
        "405" => ReplyCode::ResourceLocked,
        "406" => ReplyCode::PreconditionFailed,
        "530" => ReplyCode::NotAllowed,
        "541" => ReplyCode::InternalError,
        other => panic!("no code {other}"),
    }
}

fn exception(text: &str) -> Exception {
    let (number, text) = text.split_once(' ').unwrap();
    Exception::new(code(number), text)
}

/// `taken`, `unroutable`, `refused CODE text`.
pub(super) fn outcome(line: &str) -> PublishOutcome {
    match line.split_once(' ') {
        None if line == "routed" => PublishOutcome::Routed,
        None if line == "unroutable" => PublishOutcome::Unroutable,
        Some(("refused", text)) => PublishOutcome::Refused(exception(text)),
        Some(_) | None => panic!("no outcome {line}"),
    }
}

const SESSION: SessionId = SessionId { node: NodeId(1), start: StartNumber(1) };
const HOME: Home = Home::Group(GroupId(1));

fn consumer(number: u64) -> ConsumerId {
    ConsumerId { session: SESSION, number }
}

/// `secret done`, `secret error CODE text`.
pub(super) fn secret(line: &str) -> Result<(), Exception> {
    match line.strip_prefix("secret error ") {
        Some(text) => Err(exception(text)),
        None => Ok(()),
    }
}

/// `CHANNEL answer …`.
pub(super) fn answer(line: &str) -> (ChannelId, Result<Answer, Exception>) {
    let (at, line) = line.split_once(' ').unwrap();
    if let Some(text) = line.strip_prefix("error ") {
        return (channel_id(at), Err(exception(text)));
    }
    let words = Words::of(line);
    let number = |at| words.plain(at).parse().unwrap();
    let answer = match words.plain(0) {
        "done" => Answer::Done,
        "declared" => Answer::Declared(DeclareOk {
            queue: short(words.plain(1)),
            messages: number(2),
            consumers: words.plain(3).parse().unwrap(),
        }),
        "removed" => Answer::Removed(number(1)),
        "consuming" => {
            Answer::Consuming { consumer: consumer(number(1)), tag: short(words.plain(2)) }
        }
        "replies" => Answer::ConsumingReplies {
            consumer: consumer(number(1)),
            tag: short(words.plain(2)),
            name: short(words.plain(3)),
        },
        "routed" => Answer::Routed(Some(0)),
        "unroutable" => Answer::Routed(None),
        "got" if words.flag("nothing") => Answer::Got(None),
        "got" => {
            let holder = Holder::Get(SESSION, Sequence(words.number("get").unwrap()));
            Answer::Got(Some(Box::new(GetOk {
                holder: HolderRef { home: HOME, holder },
                redelivered: words.flag("redelivered"),
                counts: counts(&words),
                message: message(&words),
                ready: words.number("ready").unwrap_or(0),
            })))
        }
        other => panic!("no answer {other}"),
    };
    (channel_id(at), Ok(answer))
}

fn counts(words: &Words) -> Option<Counts> {
    let acquired = words.number("acquired")?;
    Some(Counts { acquired, returned: words.number("returned").unwrap_or(0) })
}

fn message(words: &Words) -> Message {
    Message {
        exchange: words.short("exchange"),
        routing_key: words.short("key"),
        properties: properties(words),
        body: Bytes::from(words.get("body").unwrap_or_default().to_owned()),
        ..Message::default()
    }
}

pub(super) enum Report {
    Event(Event),
    Deliveries(Vec<Delivered>),
}

/// An event from the broker: `event …`.
pub(super) fn event(line: &str) -> Report {
    let words = Words::of(line);
    let channel = channel_id(words.get("channel").unwrap_or("1"));
    let who = consumer(words.number("consumer").unwrap_or(0));
    Report::Event(match words.plain(0) {
        "confirmed" => {
            let (first, last) = words.plain(1).split_once('-').unwrap();
            let (first, last) = (first.parse().unwrap(), last.parse().unwrap());
            Event::Confirmed { channel, first, last, taken: !words.flag("refused") }
        }
        "returned" => Event::Returned { channel, message: Box::new(message(&words)) },
        "cancelled" => Event::ConsumerCancelled { channel, consumer: who, tag: words.short("tag") },
        "timed-out" => Event::ConsumerTimedOut {
            channel,
            consumer: who,
            exception: exception("406 delivery acknowledgement timed out"),
        },
        "get-timed-out" => Event::GetTimedOut {
            channel,
            exception: exception("406 delivery acknowledgement timed out"),
        },
        "blocked" => Event::Blocked { reason: words.plain(1).to_owned() },
        "unblocked" => Event::Unblocked,
        "close" => Event::Close(exception(line.strip_prefix("close ").unwrap())),
        "exception" => Event::ChannelException {
            channel,
            exception: exception(line.strip_prefix("exception ").unwrap()),
        },
        "deliver" => {
            let (first, last) = words.plain(1).split_once('-').unwrap();
            let numbers = first.parse().unwrap()..=last.parse().unwrap();
            let deliver = |number| Delivered {
                channel,
                consumer: who,
                tag: words.short("tag"),
                holder: HolderRef { home: HOME, holder: Holder::Consumer(who) },
                number: DeliveryNumber(number),
                no_ack: words.flag("no_ack"),
                redelivered: words.flag("redelivered"),
                counts: counts(&words),
                message: message(&words),
            };
            return Report::Deliveries(numbers.map(deliver).collect());
        }
        other => panic!("nothing is told by {other}"),
    })
}

/// `publish 1:0 #1 "x" -> "k" b"body" mandatory`.
pub(super) fn publish(what: &str, publish: &Publish) -> String {
    let confirm = publish.confirm.map(|number| format!(" #{number}"));
    let reply_to = publish.properties.reply_to.as_ref();
    let text = format!(
        "= {what} {}{} {:?} -> {:?} {:?} {}{}",
        channel(publish.channel),
        confirm.unwrap_or_default(),
        publish.exchange,
        publish.routing_key,
        publish.body,
        if publish.mandatory { "mandatory" } else { "" },
        reply_to.map(|name| format!("reply-to={name}")).unwrap_or_default(),
    );
    text.trim_end().to_owned()
}

/// `= settle consumer 7 1-3 Ack`.
pub(super) fn settle(settle: &Settle) -> String {
    let holder = match settle.holder.holder {
        Holder::Consumer(consumer) => format!("consumer {}", consumer.number),
        Holder::Get(_, sequence) => format!("get {sequence}"),
    };
    let numbers: Vec<String> =
        settle.numbers.iter().map(|(first, last)| format!("{first}-{last}")).collect();
    format!("= settle {holder} {} {:?}", numbers.join(","), settle.settlement)
}
