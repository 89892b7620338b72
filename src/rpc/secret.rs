//! The cluster secret, without which no one is let in at the rpc port (DESIGN §1).

use std::{fmt, sync::Arc};
use subtle::ConstantTimeEq;
use tonic::{
    Request, Status,
    metadata::{Binary, MetadataValue},
    service::Interceptor,
};

/// Metadata key of the secret on every stream and call.
const SECRET_KEY: &str = "quorate-secret-bin";

/// Fewest octets of a secret.
pub const SECRET_BYTES_MIN: usize = 16;

/// What all nodes of a cluster, and who administers it, know. Its `Debug` shows nothing of it.
#[derive(Clone)]
pub struct ClusterSecret(Arc<[u8]>);

/// Why octets are no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cluster secret has {0} octets, of at least {SECRET_BYTES_MIN}")]
pub struct SecretError(pub usize);

impl ClusterSecret {
    /// A secret of these octets, white space around them left out.
    ///
    /// # Errors
    /// Fewer than [`SECRET_BYTES_MIN`].
    pub fn new(octets: &[u8]) -> Result<Self, SecretError> {
        let octets = octets.trim_ascii();
        if octets.len() < SECRET_BYTES_MIN {
            return Err(SecretError(octets.len()));
        }
        Ok(Self(octets.into()))
    }

    /// Puts the secret on a request to another node.
    pub fn sign<T>(&self, request: &mut Request<T>) {
        let mut value = MetadataValue::<Binary>::from_bytes(&self.0);
        // Neither kept in HTTP/2's tables nor shown where requests are logged.
        value.set_sensitive(true);
        request.metadata_mut().insert_bin(SECRET_KEY, value);
    }

    /// Lets a request in that carries the secret. Compares in constant time.
    ///
    /// # Errors
    /// `Unauthenticated`, without or with another secret.
    pub fn check<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let Some(shown) = request.metadata().get_bin(SECRET_KEY) else {
            return Err(Status::unauthenticated("no cluster secret was given"));
        };
        let shown = shown.to_bytes().map_err(|_| wrong())?;
        if bool::from(shown.ct_eq(&self.0)) { Ok(()) } else { Err(wrong()) }
    }
}

fn wrong() -> Status {
    Status::unauthenticated("the cluster secret is another one")
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(..)")
    }
}

/// Guards a gRPC service of this node: only who knows the cluster secret gets through. As an
/// interceptor: `SomeServer::with_interceptor(service, guard)`. On the calling side the same type
/// signs: `SomeClient::with_interceptor(channel, guard.signing())`.
#[derive(Clone, Debug)]
pub struct SecretGuard {
    secret: ClusterSecret,
    signs: bool,
}

impl SecretGuard {
    /// A guard that checks.
    #[must_use]
    pub fn new(secret: ClusterSecret) -> Self {
        Self { secret, signs: false }
    }

    /// The same secret, put on outgoing calls.
    #[must_use]
    pub fn signing(&self) -> Self {
        Self { secret: self.secret.clone(), signs: true }
    }
}

impl Interceptor for SecretGuard {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if self.signs {
            self.secret.sign(&mut request);
        } else {
            self.secret.check(&request)?;
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_the_same_secret_gets_in() {
        let secret = ClusterSecret::new(b"0123456789abcdef\n").unwrap();
        let mut signed = Request::new(());
        secret.sign(&mut signed);
        assert!(secret.check(&signed).is_ok());
        assert!(secret.check(&Request::new(())).is_err());
        for other in [&b"0123456789abcdeg"[..], b"0123456789abcdef0"] {
            assert!(ClusterSecret::new(other).unwrap().check(&signed).is_err());
        }
        assert_eq!(ClusterSecret::new(b"short  ").err(), Some(SecretError(5)));
        assert_eq!(format!("{secret:?}"), "ClusterSecret(..)");
    }
}
