//! Transcripts: what a client and the broker do, line by line, and what the machine of an open
//! connection makes of it. The files are in `tests/transcripts`, one for each part of the rules;
//! `UPDATE=1 cargo test transcripts` writes down what is, for a reader to judge.
//!
//!     > 1 queue.declare queue=q durable      the client sends a method on channel 1
//!     >& 1 basic.publish …                   … in the same read as the next line
//!     > 1 content hello expiration=5         … a header and one body frame
//!     > 1 header size=5    > 1 body hello    … one of them
//!     ! 1 declared q 0 0                     the broker answers
//!     * confirmed 1 1-3                      the broker tells
//!     ? unroutable                           the outcome of the next publish
//!     < 1 queue.declare-ok …                 the client is sent
//!     = …                                    the broker is asked
//!     end …                                  the connection ends

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod script;

use crate::{
    channel::{Action, Bounds},
    codec::{
        content::ContentHeader,
        frame::{self, Frame, Kind},
        method::Method,
    },
    connection::{
        handshake::{Capabilities, Limits},
        machine::Machine,
    },
    outbox::Outbox,
};
use bytes::BytesMut;
use quorate_client::{Answer, ChannelId, Operation, PublishOutcome};
use quorate_types::{Properties, ShortString};
pub(crate) use script::{Words, table};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    path::Path,
};

const FRAME_MAX: u32 = 8192;

/// An open connection with a broker that follows the script.
struct Play {
    machine: Machine,
    outbox: Outbox,
    outcomes: VecDeque<PublishOutcome>,
    /// Publishes of open transactions that a broker would keep.
    kept: BTreeMap<ChannelId, usize>,
    ended: bool,
    seen: String,
}

impl Play {
    fn new(words: &Words) -> Self {
        let limits = Limits {
            channel_max: words.number("channel_max").unwrap_or(10),
            frame_max: FRAME_MAX,
            heartbeat_s: 60,
        };
        let capabilities = Capabilities {
            authentication_failure_close: false,
            connection_blocked: !words.flag("without_blocked"),
            consumer_cancel_notify: !words.flag("without_notify"),
        };
        let vhost = ShortString::from_static("/");
        let alarm = words.get("alarm").map(str::to_owned);
        let consumer_max_per_channel = words.number("consumer_max_per_channel");
        let bounds =
            Bounds { max_message_size: 20, consumer_max_per_channel, default_consumer_prefetch: 0 };
        Self {
            machine: Machine::new(vhost, limits, capabilities, bounds, alarm),
            outbox: Outbox::new(),
            outcomes: VecDeque::new(),
            kept: BTreeMap::new(),
            ended: false,
            seen: String::new(),
        }
    }

    fn line(&mut self, line: &str) {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            ">" | ">&" => {
                for frame in script::frames(rest) {
                    if self.machine.takes_frames() {
                        self.machine.frame(frame, &mut self.outbox);
                    } else {
                        self.say("(not read)");
                    }
                }
            }
            "?" => self.outcomes.push_back(script::outcome(rest)),
            "!" if rest.starts_with("secret ") => {
                let updated = script::secret(rest);
                self.machine.secret_updated(updated, &mut self.outbox);
            }
            "!" => {
                let (channel, answer) = script::answer(rest);
                if matches!(answer, Ok(Answer::Routed(Some(_)))) {
                    *self.kept.entry(channel).or_default() += 1;
                }
                self.machine.answer(channel, answer, &mut self.outbox);
            }
            "*" => match script::event(rest) {
                script::Report::Event(event) => {
                    let _ = self.machine.events(&mut vec![event], &mut self.outbox);
                }
                script::Report::Deliveries(mut deliveries) => {
                    self.machine.deliver(&mut deliveries, &mut self.outbox);
                }
            },
            other => panic!("what is {other}?"),
        }
        if what != ">&" && what != "?" {
            self.settle_down();
        }
    }

    /// The same as in the session.
    fn settle_down(&mut self) {
        loop {
            let publishes = self.machine.take_publishes();
            let settles = self.machine.take_settles();
            let actions = self.machine.take_actions();
            if publishes.is_empty() && settles.is_empty() && actions.is_empty() {
                break;
            }
            let mut outcomes = Vec::new();
            for publish in publishes {
                self.say(&script::publish("publish", &publish));
                outcomes.push(self.outcomes.pop_front().unwrap_or(PublishOutcome::Routed));
            }
            let behind = self.machine.published(outcomes, &mut self.outbox);
            for settle in settles.into_iter().chain(behind) {
                self.say(&script::settle(&settle));
            }
            for action in actions {
                self.act(action);
            }
        }
        self.sent();
        if let Some(ending) = self.machine.ending()
            && !self.ended
        {
            let text = format!("end {ending:?}");
            self.ended = true;
            self.say(&text);
        }
    }

    /// The same as in the broker.
    fn act(&mut self, action: Action) {
        let text = match action {
            // The open-ok shows it.
            Action::OpenChannel(channel) => {
                return self.machine.answer(channel, Ok(Answer::Done), &mut self.outbox);
            }
            Action::Start(_, Operation::Route(publish)) => script::publish("route", &publish),
            Action::Start(channel, Operation::Commit { settles }) => {
                for settle in &settles {
                    self.say(&format!("{} with the commit", script::settle(settle)));
                }
                let count = self.kept.remove(&channel).unwrap_or(0);
                format!("= commit {} {count} publishes", script::channel(channel))
            }
            Action::Start(channel, operation) => {
                format!("= ask {} {operation:?}", script::channel(channel))
            }
            Action::LimitChannel(channel, limit) => {
                format!("= limit {} {limit:?}", script::channel(channel))
            }
            Action::RollBack(channel) => {
                let count = self.kept.remove(&channel).unwrap_or(0);
                format!("= roll back {} {count} publishes", script::channel(channel))
            }
            Action::UpdateSecret => "= update secret".to_owned(),
            Action::CloseChannel(channel) => {
                self.kept.remove(&channel);
                format!("= close channel {}", script::channel(channel))
            }
        };
        self.say(&text);
    }

    /// Takes the frames that were sent to the client.
    fn sent(&mut self) {
        let mut sent: BytesMut = self.outbox.take_all();
        while let Some(frame) = frame::take(&mut sent, FRAME_MAX).unwrap() {
            let text = format!("< {} {}", frame.channel, render(&frame));
            self.say(&text);
        }
        assert!(sent.is_empty(), "half a frame was sent");
    }

    fn say(&mut self, text: &str) {
        writeln!(self.seen, "    {text}").unwrap();
    }
}

fn render(frame: &Frame) -> String {
    match frame.kind {
        Kind::Heartbeat => "heartbeat".to_owned(),
        Kind::Body => format!("body {:?}", frame.payload),
        Kind::Header => {
            let header = ContentHeader::decode(frame.payload.clone()).unwrap();
            let properties = Properties::parse(header.properties).unwrap();
            let headers = properties.decode_headers().unwrap();
            let mut text = format!("header size={}", header.body_bytes);
            if let Some(headers) = headers {
                write!(text, " headers={:?}", headers.0).unwrap();
            }
            if let Some(reply_to) = properties.reply_to {
                write!(text, " reply-to={reply_to}").unwrap();
            }
            if let Some(expiration) = properties.expiration {
                write!(text, " expiration={expiration}").unwrap();
            }
            text
        }
        Kind::Method => {
            let method = Method::decode(frame.payload.clone()).unwrap();
            if let Method::Cold(cold) = method {
                return format!("{} {}", cold.name(), cold.fields());
            }
            format!("basic.{method:?}")
        }
    }
}

/// Plays a file: each block begins with `# name`, then comments in `#`, then lines.
fn play(file: &Path) {
    let script = std::fs::read_to_string(file).unwrap();
    let mut seen = String::new();
    for block in script.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let mut play: Option<Play> = None;
        for line in block.trim().lines().filter(|line| !line.starts_with("    ")) {
            seen.push_str(line);
            seen.push('\n');
            if line.starts_with('#') {
                continue;
            }
            if let Some(words) = line.strip_prefix("open") {
                play = Some(Play::new(&Words::of(words)));
                continue;
            }
            let play = play.get_or_insert_with(|| Play::new(&Words::of("")));
            play.line(line);
            seen.push_str(&std::mem::take(&mut play.seen));
        }
        seen.push('\n');
    }
    let seen = format!("{}\n", seen.trim_end());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, &seen).unwrap();
        return;
    }
    let differs = script.lines().zip(seen.lines()).position(|(was, is)| was != is);
    assert!(
        script == seen,
        "{}: differs from line {}; is:\n{seen}",
        file.display(),
        differs.map_or(script.lines().count(), |at| at + 1)
    );
}

#[test]
fn transcripts() {
    // Read at run time, since several checkouts may share a target folder.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let folder = Path::new(&package).join("tests/transcripts");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "transcripts are missing");
    files.iter().for_each(|file| play(file));
}
