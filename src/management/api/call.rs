//! A request that may be carried out, and its answer.

use crate::api::body::Fields;
use crate::api::caller::Caller;
use crate::api::cluster::Cluster;
use crate::api::json;
use crate::api::list::Rows;
use crate::api::refusal::Refusal;
use crate::api::route::Method;
use crate::api::uri::Query;
use crate::browser::Browser;
use crate::facts::NodeFacts;
use bytes::Bytes;
use quorate_broker::Broker;
use quorate_types::{ResourceName, ShortString, VhostName};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// What requests are answered from.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) broker: Broker,
    pub(crate) facts: Arc<NodeFacts>,
    pub(crate) cluster: Cluster,
    pub(crate) browser: Browser,
}

/// A request that its user may make.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) caller: Caller,
    pub(crate) query: Query,
    pub(crate) body: Bytes,
    /// Why, in the words of who asks: the header `X-Reason`.
    pub(crate) reason: Option<String>,
    /// The names in the path.
    pub(crate) names: Vec<(&'static str, String)>,
}

impl Call {
    /// A name in the path; `None` if the path has none of the kind.
    pub(crate) fn name(&self, kind: &str) -> Option<&str> {
        self.names.iter().find(|(name, _)| *name == kind).map(|(_, value)| value.as_str())
    }

    /// A name in the path, as the broker takes names.
    ///
    /// # Errors
    /// 404: no object has so long a name.
    pub(crate) fn short(&self, kind: &str) -> Result<ShortString, Refusal> {
        let name = self.name(kind).ok_or(Refusal::NoObject)?;
        ShortString::try_from(name).map_err(|_| Refusal::NoObject)
    }

    /// A name in the path of an object that is to be made.
    ///
    /// # Errors
    /// 400: the name is too long.
    pub(crate) fn new_name(&self, kind: &'static str) -> Result<ShortString, Refusal> {
        json::short(kind, self.name(kind).unwrap_or_default())
    }

    /// The virtual host of the path, which exists.
    ///
    /// # Errors
    /// 404.
    pub(crate) fn vhost(&self, api: &Api) -> Result<VhostName, Refusal> {
        let vhost = self.short("vhost")?;
        if api.broker.lookup().has_vhost(&vhost) { Ok(vhost) } else { Err(Refusal::NoObject) }
    }

    /// The object of the path, in a virtual host that exists.
    ///
    /// # Errors
    /// 404.
    pub(crate) fn resource(&self, api: &Api, kind: &str) -> Result<ResourceName, Refusal> {
        Ok(ResourceName { vhost: self.vhost(api)?, name: self.short(kind)? })
    }

    /// The virtual hosts that a list is about: that of the path, or all in which the user may see
    /// something.
    ///
    /// # Errors
    /// 404 without the virtual host of the path.
    pub(crate) fn vhosts(&self, api: &Api) -> Result<BTreeSet<VhostName>, Refusal> {
        if self.name("vhost").is_some() {
            return Ok(BTreeSet::from([self.vhost(api)?]));
        }
        if self.caller.is_administrator() {
            let all = api.broker.views().vhosts();
            return Ok(all.into_iter().map(|record| record.name).collect());
        }
        Ok(api.broker.lookup().usable_vhosts(&self.caller.user))
    }

    /// The fields of the body.
    ///
    /// # Errors
    /// 400 if it is no JSON object.
    pub(crate) fn fields(&self) -> Result<Fields, Refusal> {
        Fields::parse(&self.body)
    }
}

/// The body of an answer.
pub(crate) enum Content {
    /// None.
    Nothing,
    /// One object, of which columns can be chosen.
    Object(Value),
    /// Messages that were got, and whether they are in no queue any more: then the answer is not refused.
    Messages(Value, bool),
    /// JSON that is written already.
    Text(String),
    /// A large list, and the columns that it is sorted by.
    Rows(Rows, &'static [&'static str]),
    /// A list, made where it may take its time, and the columns that it is sorted by.
    List(Box<dyn FnOnce() -> Vec<Value> + Send>, &'static [&'static str]),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("Nothing"),
            Self::Object(value) => f.debug_tuple("Object").field(value).finish(),
            Self::Messages(messages, taken) => {
                f.debug_tuple("Messages").field(messages).field(taken).finish()
            }
            Self::Text(text) => f.debug_tuple("Text").field(&text.len()).finish(),
            Self::Rows(rows, order) => f.debug_tuple("Rows").field(rows).field(order).finish(),
            Self::List(_, order) => f.debug_tuple("List").field(order).finish_non_exhaustive(),
        }
    }
}

/// An answer to a request that was carried out.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content: Content,
    /// Where the new object is.
    pub(crate) location: Option<String>,
    /// Nodes that did not answer, so that something of theirs may be missing.
    pub(crate) silent: Vec<u32>,
}

/// How most lists are sorted.
pub(crate) const BY_NAME: &[&str] = &["vhost", "name"];

impl Answer {
    fn new(status: u16, content: Content) -> Self {
        Self { status, content, location: None, silent: Vec::new() }
    }

    /// One object.
    pub(crate) fn object(value: Value) -> Self {
        Self::new(200, Content::Object(value))
    }

    /// Messages that were got; `taken`: they are in no queue any more.
    pub(crate) fn messages(messages: Value, taken: bool) -> Self {
        Self::new(200, Content::Messages(messages, taken))
    }

    /// JSON that is written already.
    pub(crate) fn text(json: String) -> Self {
        Self::new(200, Content::Text(json))
    }

    /// One object with another status: a check that failed.
    pub(crate) fn with_status(status: u16, value: Value) -> Self {
        Self::new(status, Content::Object(value))
    }

    /// A list.
    pub(crate) fn list(
        order: &'static [&'static str],
        items: impl FnOnce() -> Vec<Value> + Send + 'static,
    ) -> Self {
        Self::new(200, Content::List(Box::new(items), order))
    }

    /// A large list.
    pub(crate) fn rows(order: &'static [&'static str], rows: Rows) -> Self {
        Self::new(200, Content::Rows(rows, order))
    }

    /// An object was made, or was there already.
    pub(crate) fn put(made: bool) -> Self {
        Self::new(if made { 201 } else { 204 }, Content::Nothing)
    }

    /// An object was made at a place below the path of the request.
    pub(crate) fn made_at(location: String) -> Self {
        Self { location: Some(location), ..Self::put(true) }
    }

    /// An object was made at a place below the path of the request; with what it is.
    pub(crate) fn created(value: Value, location: String) -> Self {
        Self { location: Some(location), ..Self::new(201, Content::Object(value)) }
    }

    /// Done; there is nothing more to say.
    pub(crate) fn done() -> Self {
        Self::new(204, Content::Nothing)
    }

    /// Will be done, or is done already.
    pub(crate) fn accepted() -> Self {
        Self::new(202, Content::Nothing)
    }

    /// With further nodes that did not answer. Each is named once.
    pub(crate) fn without(mut self, silent: impl IntoIterator<Item = u32>) -> Self {
        self.silent.extend(silent);
        self.silent.sort_unstable();
        self.silent.dedup();
        self
    }
}
