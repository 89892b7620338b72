//! The audit log of changes through `quorate ctl`: one line for each, by whom, from where, what, and
//! with which outcome; refused ones too. Changes over HTTP are logged by `api::audit`.

use quorate_rpc::Caller;
use std::net::IpAddr;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

/// The metadata of a call that names who makes it: user, user id and host, a line each. Nodes that call
/// each other for an operator leave it out: the node that was asked has logged the change.
pub const OPERATOR_METADATA: &str = "quorate-operator-bin";

/// Characters of a name in the log.
const NAME_MAX: usize = 128;
/// Characters of what is changed in the log.
const OBJECT_MAX: usize = 1_024;

/// A text of a caller in the log: a line, and not a long one.
pub(crate) fn shown(text: &str, most: usize) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(most).collect()
}

/// Who makes a call, by its own account and by its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operator {
    user: String,
    uid: String,
    host: String,
    /// Empty if the connection has none, as in tests.
    address: String,
}

impl Operator {
    /// Who makes the call.
    pub(crate) fn of<T>(request: &Request<T>) -> Self {
        let caller = request.extensions().get::<Caller>();
        Self::told(request.metadata(), caller.map(|caller| caller.address))
    }

    fn told(metadata: &MetadataMap, address: Option<IpAddr>) -> Self {
        let told = metadata.get_bin(OPERATOR_METADATA);
        let told = told.and_then(|told| told.to_bytes().ok()).unwrap_or_default();
        let told = String::from_utf8_lossy(&told);
        let mut lines = told.split('\n').map(|line| shown(line, NAME_MAX));
        let mut next = || lines.next().unwrap_or_default();
        Self {
            user: next(),
            uid: next(),
            host: next(),
            address: address.map(|address| address.to_string()).unwrap_or_default(),
        }
    }

    /// Whether the call says who makes it, which nodes do not.
    pub(crate) fn is_named(&self) -> bool {
        !self.user.is_empty() || !self.uid.is_empty()
    }

    /// A name for the records of the cluster.
    pub(crate) fn name(&self) -> String {
        let user = if self.user.is_empty() { &self.uid } else { &self.user };
        if self.host.is_empty() { user.clone() } else { format!("{user}@{}", self.host) }
    }

    /// Logs a change: the verb, what it is about, and what came of it.
    pub(crate) fn log<T>(&self, verb: &str, object: &str, result: &Result<T, Status>) {
        let Self { user, uid, host, address } = self;
        let object = shown(object, OBJECT_MAX);
        let result = match result {
            Ok(_) => "done".to_owned(),
            Err(status) => format!("{:?}: {}", status.code(), shown(status.message(), OBJECT_MAX)),
        };
        tracing::info!(
            target: "audit", user, uid, host, from = address, over = "ctl", verb, object, result,
            "change"
        );
    }
}

/// The name of something in a virtual host, in the log.
pub(crate) fn within(vhost: &str, name: &str) -> String {
    format!("'{name}' in vhost '{vhost}'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::metadata::MetadataValue;

    #[test]
    fn callers_are_named_by_their_metadata_in_one_line_each() {
        let mut request = Request::new(());
        assert_eq!(Operator::of(&request), Operator::default());
        let told = MetadataValue::from_bytes("ann\u{1b}[2Jé\n1000\nweb1\nmore".as_bytes());
        request.metadata_mut().insert_bin(OPERATOR_METADATA, told);
        let operator = Operator::told(request.metadata(), "10.0.0.7".parse().ok());
        let expected = ["ann[2Jé", "1000", "web1", "10.0.0.7"].map(str::to_owned);
        assert_eq!([operator.user, operator.uid, operator.host, operator.address], expected);
        assert_eq!(shown(&"x".repeat(500), NAME_MAX).len(), NAME_MAX);
    }
}
