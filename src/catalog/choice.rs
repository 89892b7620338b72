//! Exchanges that route each message to one of their destinations: by a hash of the message, or at
//! random, among all destinations or among those of this node (EXC-14, EXC-15).
//!
//! A consistent-hash exchange keeps no ring of buckets. Each destination draws a number for the
//! message from the hash and its own name, at the rate of its weight, and the best draw wins. This
//! needs no state except the bindings, is the same on all nodes, and is exact by weight. When a
//! queue is added or removed, only its own share moves; with RabbitMQ, buckets shift at a removal.
//! The cost is a few ns for each destination.
//!
//! For `x-local-random` (EXC-15) a queue is local if this node leads its group, or if it is bound
//! to a connection of this node. Without a local queue the message is unroutable, or goes to the
//! alternate exchange. Dead letters are routed by the leader of the group of their source, so a
//! queue is local to them if it is local to that leader.

use crate::{
    digest::{Digest, Feed},
    objects::{Binding, Destination, ExchangeRecord, ExchangeType},
    refusal,
    route::RouteRequest,
};
use bytes::BytesMut;
use quorate_types::{Exception, FieldTable, FieldValue, Property, ShortString};

/// Largest weight of a binding of a consistent-hash exchange.
const WEIGHT_MAX: u32 = 10_000;
/// Argument that names the header to hash.
const HASH_HEADER: &str = "hash-header";
/// Argument that names the property to hash.
const HASH_PROPERTY: &str = "hash-property";

/// The destinations of such an exchange, and how it selects one of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    rule: Rule,
    /// Sorted by destination.
    candidates: Vec<Candidate>,
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    /// `x-random`: any of the bound queues, at random.
    Chance,
    /// `x-local-random`: at random, among the queues whose leader is on this node.
    Local,
    /// `x-modulus-hash`: the hash of the keys, modulo the destinations.
    Modulus,
    /// `x-consistent-hash`: each destination draws a number for the message, and the best draw
    /// wins. A new destination takes messages from all others, and a removed one leaves its
    /// messages to all others, in proportion to the weights; no other message moves.
    Consistent(Hashed),
}

/// The part of a message that a consistent-hash exchange hashes.
#[derive(Clone, Debug, PartialEq)]
enum Hashed {
    Keys,
    Header(ShortString),
    Property(Property),
}

#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    destination: Destination,
    /// Derived from the name, not the id: a queue that is declared again gets its share back.
    seed: u64,
    /// The weight of each binding to this destination, ascending.
    weights: Vec<u32>,
}

impl Choice {
    /// The selection of an `x-random` exchange.
    pub(crate) fn by_chance() -> Self {
        Self { rule: Rule::Chance, candidates: Vec::new() }
    }

    /// The selection of an `x-local-random` exchange.
    pub(crate) fn local() -> Self {
        Self { rule: Rule::Local, candidates: Vec::new() }
    }

    /// The selection of an `x-modulus-hash` exchange.
    pub(crate) fn by_modulus() -> Self {
        Self { rule: Rule::Modulus, candidates: Vec::new() }
    }

    /// The selection of an `x-consistent-hash` exchange, whose arguments were checked when it was
    /// declared.
    pub(crate) fn consistent(exchange: &ExchangeRecord) -> Self {
        let rule = Rule::Consistent(hashed(exchange).unwrap_or(Hashed::Keys));
        Self { rule, candidates: Vec::new() }
    }

    /// Adds a binding.
    ///
    /// # Errors
    /// The key is not a weight, and the type of the exchange requires one.
    pub(crate) fn add(&mut self, binding: &Binding) -> Result<(), Exception> {
        let weight = self.weight(&binding.key)?;
        match self.place(&binding.destination) {
            Ok(at) => {
                if let Some(Candidate { weights, .. }) = self.candidates.get_mut(at) {
                    weights.insert(weights.partition_point(|present| *present < weight), weight);
                }
            }
            Err(at) => {
                let destination = binding.destination.clone();
                let mut seed = Digest::default();
                destination.name().feed(&mut seed);
                let candidate = Candidate { destination, seed: seed.0, weights: vec![weight] };
                self.candidates.insert(at, candidate);
            }
        }
        Ok(())
    }

    /// Removes a binding.
    pub(crate) fn remove(&mut self, binding: &Binding) {
        let (Ok(at), Ok(weight)) = (self.place(&binding.destination), self.weight(&binding.key))
        else {
            return;
        };
        let Some(Candidate { weights, .. }) = self.candidates.get_mut(at) else { return };
        if let Ok(place) = weights.binary_search(&weight) {
            weights.remove(place);
        }
        if weights.is_empty() {
            self.candidates.remove(at);
        }
    }

    fn place(&self, destination: &Destination) -> Result<usize, usize> {
        self.candidates.binary_search_by(|candidate| candidate.destination.cmp(destination))
    }

    fn weight(&self, key: &ShortString) -> Result<u32, Exception> {
        match self.rule {
            Rule::Consistent(_) => weight(key),
            Rule::Chance | Rule::Local | Rule::Modulus => Ok(1),
        }
    }

    /// The destination of the message; `None` if there are no destinations.
    pub(crate) fn choose(&self, request: &RouteRequest<'_>) -> Option<&Destination> {
        let chosen = match &self.rule {
            Rule::Chance => self.by_remainder((request.chance)()),
            Rule::Local => self.local_by_chance(request),
            Rule::Modulus => self.by_remainder(Hashed::Keys.word(request)),
            Rule::Consistent(hashed) => {
                let word = hashed.word(request);
                let draws = self.candidates.iter().map(|one| (one.draw(word), one));
                draws.min_by(|(left, _), (right, _)| left.total_cmp(right)).map(|(_, one)| one)
            }
        };
        chosen.map(|candidate| &candidate.destination)
    }

    fn local_by_chance(&self, request: &RouteRequest<'_>) -> Option<&Candidate> {
        let local = || {
            self.candidates.iter().filter(|candidate| match &candidate.destination {
                Destination::Queue { id, .. } => request.locality.is_local(*id),
                Destination::Exchange(_) => false,
            })
        };
        let remainder = (request.chance)().checked_rem(local().count() as u64)?;
        local().nth(usize::try_from(remainder).ok()?)
    }

    fn by_remainder(&self, word: u64) -> Option<&Candidate> {
        let remainder = word.checked_rem(self.candidates.len() as u64)?;
        self.candidates.get(usize::try_from(remainder).ok()?)
    }
}

impl Candidate {
    /// The destination's draw for a message; the lowest of all draws wins. Draws are exponentially
    /// distributed at the rate of the weight, so that a destination wins in proportion to its
    /// weight. Of several bindings to one destination the heaviest counts.
    fn draw(&self, word: u64) -> f64 {
        let uniform = ((mixed(word ^ self.seed) >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -uniform.ln() / f64::from(self.weights.last().copied().unwrap_or(1))
    }
}

impl Hashed {
    /// The hash of the message: the same on every node, in every release. A missing header or
    /// property hashes like an empty one.
    fn word(&self, request: &RouteRequest<'_>) -> u64 {
        let mut digest = Digest::default();
        match self {
            Self::Keys => request.keys().for_each(|key| key.feed(&mut digest)),
            Self::Header(name) => {
                let headers = request.properties.decode_headers().ok().flatten();
                match headers.as_ref().and_then(|headers| headers.get(name.as_str())) {
                    Some(value) => feed_value(value, &mut digest),
                    None => digest.bytes(&[]),
                }
            }
            Self::Property(property) => {
                digest.bytes(&request.properties.bytes_of(*property).unwrap_or_default());
            }
        }
        mixed(digest.0)
    }
}

/// Integers of all widths hash alike, strings by their bytes, all else by its wire format.
fn feed_value(value: &FieldValue, digest: &mut Digest) {
    if let Some(integer) = value.as_integer() {
        digest.bytes(&integer.to_be_bytes());
    } else if let Some(bytes) = value.as_long_string() {
        digest.bytes(bytes);
    } else {
        let mut bytes = BytesMut::new();
        FieldTable(vec![(ShortString::EMPTY, value.clone())]).encode_content(&mut bytes);
        digest.bytes(&bytes);
    }
}

/// Every bit of the input affects every bit of the result (the finalizer of splitmix64).
fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// EXC-14: checks the arguments of a new exchange.
pub(crate) fn check_hashed(declared: &ExchangeRecord) -> Result<(), Exception> {
    if declared.routing_kind() != ExchangeType::ConsistentHash {
        return Ok(());
    }
    hashed(declared).map(drop)
}

fn hashed(exchange: &ExchangeRecord) -> Result<Hashed, Exception> {
    let named = |argument: &str| match exchange.arguments.get(argument) {
        None => Ok(None),
        Some(value) => {
            match value.as_long_string().map(|name| ShortString::from_bytes(name.clone())) {
                Some(Ok(name)) => Ok(Some(name)),
                Some(Err(_)) | None => {
                    Err(refusal::wrong_exchange_argument(&exchange.name, argument, value))
                }
            }
        }
    };
    match (named(HASH_HEADER)?, named(HASH_PROPERTY)?) {
        (None, None) => Ok(Hashed::Keys),
        (Some(header), None) => Ok(Hashed::Header(header)),
        (None, Some(property)) => match property.as_str() {
            "correlation_id" => Ok(Hashed::Property(Property::CorrelationId)),
            "message_id" => Ok(Hashed::Property(Property::MessageId)),
            "timestamp" => Ok(Hashed::Property(Property::Timestamp)),
            other => Err(refusal::unsupported_hash_property(other)),
        },
        (Some(_), Some(_)) => Err(refusal::two_things_to_hash()),
    }
}

/// EXC-14: a binding key as a weight, an integer in Erlang's syntax.
pub(crate) fn weight(key: &ShortString) -> Result<u32, Exception> {
    let text = key.as_str();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refusal::weight_no_integer(key));
    }
    let significant = digits.trim_start_matches('0');
    if text.starts_with('-') || significant.is_empty() {
        return Err(refusal::weight_too_small());
    }
    match significant.parse() {
        Ok(weight @ 1..=WEIGHT_MAX) => Ok(weight),
        Ok(_) | Err(_) => Err(refusal::weight_too_large(WEIGHT_MAX)),
    }
}
