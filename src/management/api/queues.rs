//! Queues: `/api/queues` and below.

use crate::api::body::Fields;
use crate::api::call::{Answer, Api, BY_NAME, Call};
use crate::api::client::perform;
use crate::api::cluster::KnownQueue;
use crate::api::consumers::{self, Channels};
use crate::api::counts::Messages;
use crate::api::json;
use crate::api::list::{Chosen, Listing, Rows, Wanted, below};
use crate::api::names::Names;
use crate::api::refusal::Refusal;
use crate::api::route::Method;
use crate::api::statistics::{self, Book, Key};
use crate::parts::blocking;
use crate::wire::{self, SampledKind};
use quorate_client::{Operation, QueueDeclare};
use quorate_types::{ResourceName, ShortString};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The policies of a queue, null where none is in force.
fn policy(name: &str) -> Value {
    if name.is_empty() { Value::Null } else { Value::from(name) }
}

/// What RabbitMQ calls the state of a queue whose leader has, or has not, answered.
fn state(queue: &wire::Queue, fresh: bool) -> &'static str {
    match (fresh, queue.online.len() * 2 > queue.members.len()) {
        (true, _) => "running",
        (false, true) => "down",
        (false, false) => "minority",
    }
}

/// A queue, with what its fields are made of.
struct Shown<'a> {
    queue: &'a wire::Queue,
    fresh: bool,
    counts: wire::QueueCounts,
    names: &'a Names,
}

impl<'a> Shown<'a> {
    fn of(known: &'a KnownQueue, names: &'a Names) -> Self {
        let KnownQueue { queue, fresh } = known;
        Self { queue, fresh: *fresh, counts: queue.counts.unwrap_or_default(), names }
    }

    /// The connection of an exclusive queue.
    fn owner(&self) -> Option<Value> {
        let owner = self.queue.owner?;
        let node = self.names.name(owner.node);
        Some(json!({ "name": format!("<{node}.{}.{}>", owner.start, owner.number) }))
    }

    /// The node of the queue: its leader; else any member, which is better than no node at all.
    fn node(&self) -> &str {
        let home = [self.queue.leader].into_iter().chain(self.queue.members.first().copied());
        let names = home.map(|id| self.names.name(id));
        names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
    }

    fn messages(&self) -> u64 {
        let mut messages = Messages::default();
        messages.add(&self.counts);
        messages.all()
    }

    fn bytes(&self) -> u64 {
        self.counts.ready_bytes.saturating_add(self.counts.unacknowledged_bytes)
    }

    fn capacity(&self) -> Value {
        Value::from(self.counts.consumer_capacity() as f64)
    }

    /// Whatever its delivery mode, a message in a durable queue survives.
    fn persistent(&self, of_all: u64) -> Value {
        Value::from(if self.queue.durable { of_all } else { 0 })
    }
}

/// Milliseconds as seconds.
fn seconds(ms: u64) -> Value {
    Value::from(ms as f64 / 1_000.0)
}

/// How a field is made. A list of ten thousand queues is sorted by one of them.
type Field = fn(&Shown<'_>) -> Value;

/// The fields of a queue in lists. Counts that are not known are 0, and the state is not `running`.
const FIELDS: [(&str, Field); 32] = [
    ("name", |one| Value::from(one.queue.name.as_str())),
    ("vhost", |one| Value::from(one.queue.vhost.as_str())),
    ("type", |one| Value::from(one.queue.queue_type.as_str())),
    ("durable", |one| Value::from(one.queue.durable)),
    ("auto_delete", |one| Value::from(one.queue.auto_delete)),
    ("exclusive", |one| Value::from(one.queue.owner.is_some())),
    ("arguments", |one| json::table(&one.queue.arguments)),
    ("node", |one| Value::from(one.node())),
    ("leader", |one| Value::from(one.node())),
    ("members", |one| Value::from(one.names.all(&one.queue.members))),
    ("online", |one| Value::from(one.names.all(&one.queue.online))),
    ("state", |one| Value::from(state(one.queue, one.fresh))),
    ("policy", |one| policy(&one.queue.policy)),
    ("operator_policy", |one| policy(&one.queue.operator_policy)),
    ("effective_policy_definition", |one| {
        serde_json::from_str(&one.queue.effective_policy_definition).unwrap_or_else(|_| json!({}))
    }),
    ("messages", |one| Value::from(one.messages())),
    ("messages_ready", |one| Value::from(one.counts.ready)),
    ("messages_unacknowledged", |one| Value::from(one.counts.unacknowledged)),
    ("messages_delayed", |one| Value::from(one.counts.delayed)),
    ("oldest_message_age_seconds", |one| one.counts.oldest_age.map_or(Value::Null, seconds)),
    ("messages_persistent", |one| one.persistent(one.messages())),
    ("messages_ram", |_| Value::from(0)),
    ("messages_dlx", |one| Value::from(one.counts.dead_letters_waiting)),
    ("message_bytes", |one| Value::from(one.bytes())),
    ("message_bytes_ready", |one| Value::from(one.counts.ready_bytes)),
    ("message_bytes_unacknowledged", |one| Value::from(one.counts.unacknowledged_bytes)),
    ("message_bytes_persistent", |one| one.persistent(one.bytes())),
    ("message_bytes_ram", |_| Value::from(0)),
    ("consumers", |one| Value::from(one.counts.consumers)),
    ("consumer_capacity", |one| one.capacity()),
    ("consumer_utilisation", |one| one.capacity()),
    ("memory", |one| Value::from(one.counts.memory_bytes)),
];

/// The field of the connection of an exclusive queue. Others do not have it.
const OWNER: &str = "owner_pid_details";

/// A queue as lists show it.
pub(crate) fn shape(known: &KnownQueue, names: &Names) -> Value {
    Selection::of(Wanted::All).fields(known, names)
}

/// The fields that are made of queues.
struct Selection {
    fields: Vec<(&'static str, Field)>,
    has_owner: bool,
    has_statistics: bool,
}

impl Selection {
    fn of(wanted: Wanted<'_>) -> Self {
        Self {
            fields: FIELDS.into_iter().filter(|(name, _)| wanted.has(name)).collect(),
            has_owner: wanted.has(OWNER),
            has_statistics: wanted.has_statistics(),
        }
    }

    fn fields(&self, known: &KnownQueue, names: &Names) -> Value {
        let one = Shown::of(known, names);
        let fields = self.fields.iter();
        let mut shown: Map<_, _> =
            fields.map(|(name, make)| ((*name).to_owned(), make(&one))).collect();
        if self.has_owner
            && let Some(owner) = one.owner()
        {
            shown.insert(OWNER.to_owned(), owner);
        }
        Value::Object(shown)
    }
}

/// The queues of virtual hosts.
pub(crate) async fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhosts = call.vhosts(api)?;
    let (spans, listing) = (statistics::spans(call)?, Listing::parse(&call.query)?);
    // Of many queues a page is shown, and only the samples of these are fetched.
    let is_page = spans.has_samples() && listing.is_page();
    let first = if is_page { spans.without_samples() } else { spans };
    let (listed, names, book) = tokio::join!(
        api.cluster.queues(&vhosts),
        Names::of(api),
        Book::of(api, call, &first, SampledKind::Queues),
    );
    let mut list = List { queues: listed.items, names, book: book?, chosen: None };
    if is_page {
        let ids;
        (list, ids) = list.choose(listing).await?;
        // A request without queues asks for the statistics of all.
        if !ids.is_empty() {
            list.book.take_samples(Book::of_queues(api, call, &spans, ids).await?);
        }
    }
    let silent = list.book.silent.clone();
    Ok(Answer::rows(BY_NAME, list.into_rows()).without(listed.silent).without(silent))
}

/// What a list of queues is made of.
struct List {
    queues: Vec<KnownQueue>,
    names: Names,
    book: Book,
    /// The page that is asked for.
    chosen: Option<Chosen>,
}

impl List {
    fn objects(&self, rows: &[usize], fields: Wanted<'_>) -> Vec<Value> {
        let selection = Selection::of(fields);
        let object = |known: &KnownQueue| {
            let mut shown = selection.fields(known, &self.names);
            if selection.has_statistics {
                self.book.insert(&mut shown, Key::of_queue(&known.queue).as_ref());
            }
            shown
        };
        rows.iter().map(|row| self.queues.get(*row).map(object).unwrap_or_default()).collect()
    }

    /// The values at a path, of all queues.
    fn column(&self, path: &[&str]) -> Vec<Option<Value>> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let field = FIELDS.into_iter().find(|(name, _)| name == first);
        let value = |known: &KnownQueue| match field {
            Some((_, make)) => below(make(&Shown::of(known, &self.names)), rest),
            None if *first == OWNER => below(Shown::of(known, &self.names).owner()?, rest),
            None => self.book.at(Key::of_queue(&known.queue).as_ref(), path),
        };
        self.queues.iter().map(value).collect()
    }

    fn into_rows(mut self) -> Rows {
        let (count, chosen) = (self.queues.len(), self.chosen.take());
        let list = Arc::new(self);
        let of_list = Arc::clone(&list);
        let objects = move |rows: &[usize], fields: Wanted<'_>| of_list.objects(rows, fields);
        let column = move |path: &[&str]| list.column(path);
        Rows { count, objects: Box::new(objects), column: Box::new(column), chosen }
    }

    /// Chooses the page that is asked for, and gives its queues.
    async fn choose(mut self, listing: Listing) -> Result<(Self, Vec<wire::QueueId>), Refusal> {
        let choose = move || {
            let column = |path: &[&str]| self.column(path);
            let chosen = listing.chosen(self.queues.len(), column, BY_NAME)?;
            let queues = chosen.rows.iter().filter_map(|row| self.queues.get(*row)?.queue.id);
            let queues = queues.collect();
            self.chosen = Some(chosen);
            Ok((self, queues))
        };
        let unavailable = || Refusal::Unavailable("the list cannot be made".to_owned());
        blocking(choose).await.ok_or_else(unavailable)?
    }
}

/// One queue: reads, makes or deletes it.
pub(crate) async fn one(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    match call.method {
        Method::Get => read(api, call).await,
        Method::Put | Method::Post => declare(api, call).await,
        Method::Delete => delete(api, call).await,
    }
}

async fn read(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let name = call.resource(api, "queue")?;
    let spans = statistics::spans(call)?;
    let (known, names, book) = tokio::join!(
        api.cluster.queue(&name),
        Names::of(api),
        Book::of_one(api, call, (&spans, SampledKind::Queues), &name),
    );
    let (known, book) = (known.ok_or(Refusal::NoObject)?, book?);
    let key = Key::of_queue(&known.queue);
    // An autoscaler would take 0 for the truth, of messages as of rates.
    let is_known = !book.misses(key.as_ref(), known.queue.leader);
    let Some(counts) = known.queue.counts.filter(|_| is_known) else {
        let text = format!("the leader of queue {name} does not answer");
        return Err(Refusal::Unavailable(text));
    };
    // A queue is asked for often, and mostly for its counts.
    let (details, silent) = match counts.consumers {
        0 => (Vec::new(), Vec::new()),
        _ => consumer_details(api, &name, &known, &names).await,
    };
    let mut shown = book.with(shape(&known, &names), key.as_ref());
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("single_active_consumer_ctag".to_owned(), active_tag(&details));
        fields.insert("consumer_details".to_owned(), Value::Array(details));
        fields.insert("deliveries".to_owned(), json!([]));
        fields.insert("incoming".to_owned(), json!([]));
    }
    Ok(Answer::object(shown).without(silent).without(book.silent))
}

/// The tag of the single active consumer among the consumers of a queue; null without one.
fn active_tag(details: &[Value]) -> Value {
    let is_active =
        |one: &&Value| one.get("activity_status").is_some_and(|status| status == "single_active");
    details
        .iter()
        .find(is_active)
        .and_then(|one| one.get("consumer_tag"))
        .cloned()
        .unwrap_or_default()
}

/// The consumers of a queue, and the nodes that did not answer.
async fn consumer_details(
    api: &Api,
    name: &ResourceName,
    known: &KnownQueue,
    names: &Names,
) -> (Vec<Value>, Vec<u32>) {
    let vhosts = BTreeSet::from([name.vhost.clone()]);
    let (consumers, channels) =
        tokio::join!(api.cluster.consumers(&vhosts), api.cluster.channels());
    let of_queue = consumers.items.iter().filter(|one| one.consumer.queue == known.queue.name);
    let silent = channels.silent;
    let channels = Channels::of(&channels.items);
    let shape = |one| consumers::shape(one, &channels, names);
    let shown = of_queue.map(shape).collect();
    (shown, [consumers.silent, silent].concat())
}

/// The declare of a queue, as its request says.
fn declaration(queue: ShortString, fields: &Fields) -> Result<QueueDeclare, Refusal> {
    Ok(QueueDeclare {
        queue,
        durable: fields.flag("durable", false)?,
        exclusive: false,
        auto_delete: fields.flag("auto_delete", false)?,
        arguments: fields.arguments()?,
    })
}

async fn declare(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhost = call.vhost(api)?;
    let declare = declaration(call.new_name("queue")?, &call.fields()?)?;
    let name = ResourceName { vhost, name: declare.queue.clone() };
    let was_there = api.broker.lookup().queue(&name).is_some();
    perform(&api.broker, &call.caller, &name.vhost, Operation::QueueDeclare(declare)).await?;
    Ok(Answer::put(!was_there))
}

/// The name of a queue that is there.
async fn known(api: &Api, call: &Call) -> Result<ResourceName, Refusal> {
    let name = call.resource(api, "queue")?;
    // AMQP takes a missing queue for deleted already, HTTP does not. Another node may know a connection-bound one.
    let is_there = api.broker.lookup().queue(&name).is_some();
    if is_there || api.cluster.queue(&name).await.is_some() {
        Ok(name)
    } else {
        Err(Refusal::NoObject)
    }
}

async fn delete(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let ResourceName { vhost, name: queue } = known(api, call).await?;
    let (if_unused, if_empty) = (call.query.is_true("if-unused"), call.query.is_true("if-empty"));
    let delete = Operation::QueueDelete { queue, if_unused, if_empty };
    perform(&api.broker, &call.caller, &vhost, delete).await?;
    Ok(Answer::done())
}

/// Purges a queue.
pub(crate) async fn purge(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let ResourceName { vhost, name } = known(api, call).await?;
    perform(&api.broker, &call.caller, &vhost, Operation::QueuePurge(name)).await?;
    Ok(Answer::done())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::api::tests::{assert_has_keys, names};

    /// Keys of RabbitMQ's reply that have no meaning here, or that are known only from samples.
    const WITHOUT: &[&str] = &[
        "consumer_details",
        "deliveries",
        "garbage_collection",
        "incoming",
        "message_bytes_dlx",
        "message_stats",
        "messages_details",
        "messages_ready_details",
        "messages_unacknowledged_details",
        "open_files",
        "reductions",
        "reductions_details",
        "single_active_consumer_ctag",
    ];

    fn known(counts: Option<wire::QueueCounts>, fresh: bool) -> KnownQueue {
        let queue = wire::Queue {
            name: "q".to_owned(),
            vhost: "/".to_owned(),
            queue_type: "quorum".to_owned(),
            durable: true,
            leader: 1,
            members: vec![1, 2],
            online: vec![1],
            counts,
            ..wire::Queue::default()
        };
        KnownQueue { queue, fresh }
    }

    #[test]
    fn a_queue_has_the_keys_of_rabbitmqs() {
        let counts = wire::QueueCounts { ready: 3, unacknowledged: 2, ..Default::default() };
        let shown = shape(&known(Some(counts), true), &names());
        assert_has_keys(&shown, include_str!("gold/queue.json"), WITHOUT);
        let get = |name: &str| shown.get(name).cloned().unwrap();
        assert_eq!(get("messages"), json!(5));
        assert_eq!(get("consumer_utilisation"), json!(0.0), "nobody consumes");
        let busy = wire::QueueCounts { consumers: 1, unacknowledged: 2, ..Default::default() };
        let busy = shape(&known(Some(busy), true), &names());
        assert_eq!(busy.get("consumer_capacity"), Some(&json!(1.0)));
        assert_eq!(get("oldest_message_age_seconds"), Value::Null);
        let old = wire::QueueCounts { ready: 3, oldest_age: Some(7_063), ..Default::default() };
        let shown = shape(&known(Some(old), true), &names());
        assert_eq!(shown.get("oldest_message_age_seconds"), Some(&json!(7.063)));
        assert_eq!((get("node"), get("state")), (json!("rabbit1@a"), json!("running")));
        assert_eq!((get("policy"), get("arguments")), (Value::Null, json!({})));
        assert_eq!(get("effective_policy_definition"), json!({}));
    }

    /// A missing count would be taken for 0 without a sign that it is none.
    #[test]
    fn a_queue_without_counts_has_them_but_does_not_run() {
        let shown = shape(&known(None, false), &names());
        assert_eq!(shown.get("messages"), Some(&json!(0)));
        assert_eq!(shown.get("state"), Some(&json!("minority")));
    }

    #[test]
    fn a_declare_says_what_it_wants() {
        let parse = |body: &str| {
            let fields = Fields::parse(body.as_bytes()).unwrap();
            declaration(ShortString::from_static("q"), &fields)
        };
        assert!(!parse("").unwrap().durable);
        let declare =
            parse(r#"{"durable":true,"auto_delete":"true","arguments":{"x":1}}"#).unwrap();
        assert!(declare.durable && declare.auto_delete);
        assert_eq!(declare.arguments.0.len(), 1);
        for wrong in [r#"{"durable":1}"#, r#"{"arguments":[1]}"#, r#"{"auto_delete":"x"}"#] {
            assert!(matches!(parse(wrong), Err(Refusal::BadRequest(_))), "{wrong}");
        }
    }
}
