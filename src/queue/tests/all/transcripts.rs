//! Transcripts: one text file for each rule in `tests/transcripts/`, with commands and their
//! outcomes. A line that begins with `>` is an outcome; `#` begins a comment.
//! `UPDATE_TRANSCRIPTS=1` writes the outcomes again; read them before you keep them.
#![expect(clippy::disallowed_methods, reason = "transcripts are files")]

use crate::{
    letter_model::with_dlx,
    world::{Step, World, heads, name, session},
};
use quorate_queue::{
    Command, ConsumerTerms, Counts, Detach, Effect, QueueConfig, Record, RecordKey, Reply,
    RequeueCause,
};
use quorate_types::{
    CatalogIndex, ConsumerId, DeliveryNumber, Holder, Level, NodeId, Overflow, QueueId, QueueType,
    Sequence, SessionId, ShortString,
};
use std::{collections::BTreeMap, fmt::Write, path::Path};

/// The size of a message's body modulo this number is the index of its tag.
const TAGS: u32 = 1_000;

struct Script {
    world: World,
    queues: BTreeMap<String, QueueId>,
    consumers: BTreeMap<String, ConsumerId>,
    gets: BTreeMap<String, (SessionId, Sequence)>,
    starts: BTreeMap<u16, u64>,
    /// Tags of messages; the body of a message has as many bytes as the index of its tag.
    messages: Vec<String>,
}

/// One line: a verb, names, `key=value` settings and flags.
struct Line<'a> {
    verb: &'a str,
    words: Vec<&'a str>,
    settings: BTreeMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Self {
        let mut parts = line.split_whitespace();
        let verb = parts.next().unwrap();
        let (settings, words): (Vec<_>, Vec<_>) = parts.partition(|part| part.contains('='));
        let settings = settings.into_iter().map(|part| part.split_once('=').unwrap()).collect();
        Self { verb, words, settings }
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.settings.get(key).map(|value| value.parse().expect("a number"))
    }

    fn flag(&self, flag: &str) -> bool {
        self.words.contains(&flag)
    }

    fn node(&self) -> u16 {
        self.number("node").unwrap_or(1) as u16
    }
}

impl Script {
    fn new() -> Self {
        Self {
            world: World::new(),
            queues: BTreeMap::new(),
            consumers: BTreeMap::new(),
            gets: BTreeMap::new(),
            starts: BTreeMap::new(),
            messages: vec![String::new()],
        }
    }

    fn session(&self, node: u16) -> SessionId {
        session(node, self.starts.get(&node).copied().unwrap_or(1))
    }

    /// Carries a line out, and returns its outcomes.
    fn line(&mut self, text: &str) -> Vec<String> {
        let line = Line::parse(text);
        let mut outcomes = Vec::new();
        self.world.out.clear();
        match line.verb {
            "show" => outcomes.push(self.show(self.queues[line.words[0]])),
            "at" => self.world.time = line.words[0].parse().unwrap(),
            "restart" => *self.starts.entry(line.words[0].parse().unwrap()).or_insert(1) += 1,
            "down" | "suspect" | "back" | "timeout" | "ended" | "continue" | "life" | "wake" => {
                let command = self.leader_command(&line);
                self.world.leader(command);
            }
            _ => {
                let (by, step) = self.step(&line);
                let reply = self.world.run(by, &[step]).pop().unwrap();
                if let Reply::Created(id) = reply {
                    self.queues.insert(line.words[0].to_owned(), id);
                }
                if reply != Reply::Taken {
                    outcomes.push(self.reply(&reply));
                }
            }
        }
        outcomes.extend(self.effects());
        outcomes
    }

    fn leader_command(&self, line: &Line<'_>) -> Command {
        let number = || line.words[0].parse::<u64>().unwrap();
        let node = || NodeId(number() as u16);
        match line.verb {
            "down" => Command::NodeDown { node: node(), start: self.session(node().0).start },
            "suspect" => Command::NodeSuspected { node: node() },
            "back" => Command::NodeBack { node: node() },
            "timeout" => Command::NodeTimedOut { node: node() },
            "ended" => Command::SessionEnded { session: self.session(node().0) },
            "life" => Command::NewLife { life: number() },
            "wake" => Command::ExpireHead { queue: self.queues[line.words[0]] },
            _ => Command::Continue,
        }
    }

    fn step(&mut self, line: &Line<'_>) -> (SessionId, Step) {
        let by = self.session(line.node());
        let command = match line.verb {
            "create" => Command::CreateQueue {
                name: name(line.words[0]),
                config: config(line),
                bound: None,
            },
            "enqueue" => return (by, self.enqueue(line)),
            "attach" => {
                let number = self.consumers.len() as u64 + 1;
                let consumer = ConsumerId { session: by, number };
                self.consumers.insert(line.words[0].to_owned(), consumer);
                let queue = self.queues[line.words[1]];
                Command::Attach { queue, consumer, terms: terms(line) }
            }
            "get" => {
                let number = Sequence(self.world.next.get(&by).copied().unwrap_or(1));
                self.gets.insert(line.words[2].to_owned(), (by, number));
                Command::Get {
                    queue: self.queues[line.words[0]],
                    timeout_default_ms: line.number("default"),
                }
            }
            "settle" | "discard" | "return" | "release" | "cancel" | "close" | "credit" => {
                return self.delivery_command(line);
            }
            _ => self.queue_command(line),
        };
        (by, Step::Other(command))
    }

    fn queue_command(&self, line: &Line<'_>) -> Command {
        let queue = self.queues[line.words[0]];
        match line.verb {
            "end" => {
                let (if_unused, if_empty) = (line.flag("if-unused"), line.flag("if-empty"));
                Command::EndQueue { queue, if_unused, if_empty }
            }
            "configure" => Command::Configure { queue, config: config(line) },
            "inspect" => Command::Inspect { queue, renew: line.flag("renew") },
            "purge" => Command::Purge { queue },
            verb => panic!("no such verb: {verb}"),
        }
    }

    fn enqueue(&mut self, line: &Line<'_>) -> Step {
        let tags = &line.words[1..];
        let sizes: Vec<u32> = (self.messages.len() as u32..).take(tags.len()).collect();
        self.messages.extend(tags.iter().map(|tag| (*tag).to_owned()));
        let level = Level(line.number("level").unwrap_or(0) as u8);
        let mut messages = heads(&sizes);
        for head in &mut messages {
            head.expiration_ms = line.number("expiration");
            // Lets limits on bytes be shown with small numbers.
            head.body_bytes += line.number("bytes").unwrap_or(0) as u32 * TAGS;
        }
        Step::Enqueue { queue: self.queues[line.words[0]], level, messages }
    }

    fn delivery_command(&self, line: &Line<'_>) -> (SessionId, Step) {
        let who = line.words[0];
        let holder = match self.consumers.get(who) {
            Some(consumer) => Holder::Consumer(*consumer),
            None => {
                let (session, number) = self.gets[who];
                Holder::Get(session, number)
            }
        };
        let number = |key| DeliveryNumber(line.number(key).expect(key));
        let numbers = match holder {
            Holder::Consumer(_) => line.words[1..].iter().map(|range| numbers(range)).collect(),
            Holder::Get(..) => vec![numbers("1")],
        };
        let command = match line.verb {
            "settle" => Command::Ack { holder, numbers },
            "discard" => Command::Discard { holder, numbers },
            "release" => Command::Release { holder, numbers },
            "return" => Command::Requeue { holder, numbers, cause: cause(line.settings["by"]) },
            verb => {
                let consumer = self.consumers[who];
                match verb {
                    "cancel" => {
                        Command::Detach { consumer, shown: number("shown"), how: Detach::Cancel }
                    }
                    "close" => {
                        let how = Detach::ChannelEnd;
                        Command::Detach { consumer, shown: number("shown"), how }
                    }
                    _ => Command::Credit { consumer, up_to: number("up-to") },
                }
            }
        };
        (holder.session(), Step::Other(command))
    }

    fn tag(&self, bytes: u32, counts: Counts) -> String {
        let tag = &self.messages[(bytes % TAGS) as usize];
        if counts == Counts::default() {
            tag.clone()
        } else {
            format!("{tag}({},{})", counts.acquired, counts.returned)
        }
    }

    fn consumer(&self, id: ConsumerId) -> &str {
        self.consumers.iter().find(|(_, consumer)| **consumer == id).unwrap().0
    }

    fn reply(&self, reply: &Reply) -> String {
        match reply {
            Reply::Created(_) => "created".to_owned(),
            Reply::Gone => "gone".to_owned(),
            Reply::Alive(it) => {
                let at = it.configured_at;
                format!("alive: {} ready, {} consumers, settings of {at}", it.ready, it.consumers)
            }
            Reply::Ended { ready } => format!("ended with {ready} ready"),
            Reply::InUse => "in use".to_owned(),
            Reply::NotEmpty => "not empty".to_owned(),
            Reply::ExclusiveInUse => "in exclusive use".to_owned(),
            Reply::Got(got) => {
                let id = got.message;
                let store = &self.world.store;
                let head = store.message(got.queue, id.level, id.index, id.position).unwrap();
                format!("got {}, {} ready", self.tag(head.body_bytes, got.counts), got.ready)
            }
            Reply::Empty => "empty".to_owned(),
            Reply::Refused(places) => format!("refused {places:?}"),
            Reply::Purged { messages } => format!("purged {messages}"),
            other => panic!("unexpected reply: {other:?}"),
        }
    }

    fn effects(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut last = None;
        for effect in &self.world.out.effects {
            match effect {
                Effect::Deliver(it) => {
                    let id = it.message;
                    let store = &self.world.store;
                    let head = store.message(it.queue, id.level, id.index, id.position).unwrap();
                    let tag = self.tag(head.body_bytes, it.counts);
                    if last != Some(it.consumer) {
                        lines.push(format!("{}:", self.consumer(it.consumer)));
                    }
                    last = Some(it.consumer);
                    write!(lines.last_mut().unwrap(), " {}={tag}", it.number).unwrap();
                    continue;
                }
                Effect::CancelConsumer { consumer } => {
                    lines.push(format!("{} is cancelled by the broker", self.consumer(*consumer)));
                }
                Effect::QueueEnded { queue } => {
                    lines.push(format!("{} has ended", self.queue_name(*queue)));
                }
                Effect::ContinueSoon => lines.push("continue soon".to_owned()),
                Effect::WakeAt { queue, time } => {
                    lines.push(format!("wake {} at {}", self.queue_name(*queue), time.0));
                }
                Effect::ConsumerTimedOut { consumer, last } => {
                    lines.push(format!("{} has timed out up to {last}", self.consumer(*consumer)));
                }
                Effect::GetTimedOut { session, sequence } => {
                    let get = self.gets.iter().find(|(_, it)| **it == (*session, *sequence));
                    lines.push(format!("{} has timed out", get.unwrap().0));
                }
                Effect::DeadLettersCounted { .. } => continue,
                Effect::DeadLettersChanged => lines.push("dead letters changed".to_owned()),
                effect => panic!("no letter here is routed: {effect:?}"),
            }
            last = None;
        }
        lines
    }

    fn queue_name(&self, queue: QueueId) -> &str {
        let found = self.queues.iter().find(|(_, id)| **id == queue);
        found.map_or("it", |(name, _)| name)
    }

    /// The whole of a queue.
    fn show(&self, queue: QueueId) -> String {
        let machine = &self.world.machine;
        let Some(view) = machine.queue(queue) else { return "no queue".to_owned() };
        let mut text = format!("{} consumers; ready:", view.consumers);
        let mut holds = String::new();
        let mut ready = Vec::new();
        for key in machine.keys() {
            match (key, machine.record(key).unwrap()) {
                (RecordKey::Requeued(of, level), Record::Requeued(record)) if of == queue => {
                    ready.extend(record.messages.iter().map(|((index, position), queued)| {
                        let tag = self.tag(queued.head.body_bytes, queued.counts);
                        (std::cmp::Reverse(level), *index, *position, tag)
                    }));
                }
                (RecordKey::Consumer(of, id), Record::Consumer(record)) if of == queue => {
                    write!(holds, "; {} holds:", self.consumer(id)).unwrap();
                    for (number, queued) in record.unacked {
                        let tag = self.tag(queued.head.body_bytes, queued.counts);
                        write!(holds, " {number}={tag}").unwrap();
                    }
                }
                (RecordKey::Gets(of, session), Record::Gets(record)) if of == queue => {
                    for (sequence, queued) in record.unacked {
                        let get = self.gets.iter().find(|(_, it)| **it == (session, sequence));
                        let tag = self.tag(queued.head.body_bytes, queued.counts);
                        write!(holds, "; {} holds: {tag}", get.unwrap().0).unwrap();
                    }
                }
                _ => {}
            }
        }
        for (level, index, position, bytes) in self.world.store.fresh(machine, queue) {
            let tag = self.tag(bytes, Counts::default());
            ready.push((std::cmp::Reverse(level), index, position, tag));
        }
        ready.sort();
        assert_eq!(ready.len() as u64, view.ready);
        for (_, _, _, tag) in ready {
            write!(text, " {tag}").unwrap();
        }
        text + &self.letters(queue) + &holds
    }

    fn letters(&self, queue: QueueId) -> String {
        let mut text = String::new();
        for key in self.world.machine.keys() {
            if let (RecordKey::Letters(of, _), Some(Record::Letters(letters))) =
                (key, self.world.machine.record(key))
                && of == queue
            {
                for letter in letters.values() {
                    let tag = self.tag(letter.body_bytes, Counts::default());
                    write!(text, " {tag}").unwrap();
                }
            }
        }
        if text.is_empty() { text } else { format!("; letters:{text}") }
    }
}

fn config(line: &Line<'_>) -> QueueConfig {
    let queue_type = if line.flag("quorum") { QueueType::Quorum } else { QueueType::Classic };
    QueueConfig {
        durable: !line.flag("transient"),
        auto_delete: line.flag("auto-delete"),
        delivery_count_failures: line.flag("count-failures"),
        resolved_at: CatalogIndex(line.number("resolved-at").unwrap_or(0)),
        message_ttl_ms: line.number("ttl"),
        expires_ms: line.number("expires"),
        length_max: line.number("max-length"),
        length_bytes_max: line.number("max-bytes").map(|bytes| bytes * u64::from(TAGS)),
        overflow: match line.settings.get("overflow").copied() {
            Some("reject-publish") => Overflow::RejectPublish,
            Some("reject-publish-dlx") => Overflow::RejectPublishDlx,
            _ => Overflow::DropHead,
        },
        delivery_limit: line.number("delivery-limit").map(|limit| limit as u32),
        single_active_consumer: line.flag("single-active"),
        consumer_timeout_ms: line.number("timeout"),
        dead_letter: with_dlx().dead_letter.filter(|_| line.flag("dlx")),
        ..QueueConfig::plain(queue_type)
    }
}

fn terms(line: &Line<'_>) -> ConsumerTerms {
    ConsumerTerms {
        prefetch: line.number("prefetch").map(|it| it as u32),
        up_to: DeliveryNumber(line.number("up-to").unwrap_or(u64::MAX)),
        exclusive: line.flag("exclusive"),
        priority: line.settings.get("priority").map_or(0, |it| it.parse().unwrap()),
        tag: ShortString::EMPTY,
        no_ack: line.flag("no-ack"),
        timeout_default_ms: line.number("default"),
        timeout_ms: line.number("timeout"),
    }
}

fn numbers(range: &str) -> (DeliveryNumber, DeliveryNumber) {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    (DeliveryNumber(first.parse().unwrap()), DeliveryNumber(last.parse().unwrap()))
}

fn cause(cause: &str) -> RequeueCause {
    match cause {
        "reject" => RequeueCause::Reject,
        "nack" => RequeueCause::Nack,
        "recover" => RequeueCause::Recover,
        "channel-end" => RequeueCause::ChannelEnd,
        other => panic!("no such cause: {other}"),
    }
}

/// The transcript with its actual outcomes.
fn play(text: &str) -> String {
    let mut script = Script::new();
    let mut played = String::new();
    for line in text.lines().filter(|line| !line.starts_with('>')) {
        played.push_str(line);
        played.push('\n');
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        for outcome in script.line(line) {
            writeln!(played, "> {outcome}").unwrap();
        }
    }
    played
}

#[test]
fn transcripts() {
    // Read at run time, since several checkouts may share a target folder.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let folder = Path::new(&package).join("tests/transcripts");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "transcripts are missing");
    let mut failed = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let played = play(&text);
        assert!(played.contains('>'), "{} shows no outcome", file.display());
        if played != text {
            if std::env::var("UPDATE_TRANSCRIPTS").is_ok() {
                std::fs::write(&file, &played).unwrap();
            }
            failed.push(format!("{}, as it comes out:\n{played}", file.display()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
