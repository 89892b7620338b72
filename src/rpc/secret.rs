//! The cluster secret, with which peers authenticate at the rpc port (DESIGN §1).

use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::{fmt, sync::Arc};

/// Minimum length of a secret, bytes.
pub const SECRET_BYTES_MIN: usize = 16;

/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub(crate) const PROOF_BYTES: usize = 32;

/// A number used once.
pub(crate) type Nonce = [u8; NONCE_BYTES];

/// The side of a connection that makes a proof.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// The side that has opened the connection.
    Dialer,
    /// The side that listens.
    Acceptor,
}

/// The secret that all nodes of a cluster and its administrators know. Its `Debug` output does not
/// contain it.
#[derive(Clone)]
pub struct ClusterSecret(Arc<[u8]>);

/// Why bytes are not a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cluster secret has {0} bytes, at least {SECRET_BYTES_MIN} are required")]
pub struct SecretError(pub usize);

impl ClusterSecret {
    /// A secret of these bytes, without surrounding white space.
    ///
    /// # Errors
    /// Fewer than [`SECRET_BYTES_MIN`].
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        let bytes = bytes.trim_ascii();
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(SecretError(bytes.len()));
        }
        Ok(Self(bytes.into()))
    }

    /// HMAC-SHA-256 of the role and the nonces of both ends.
    fn mac(&self, role: Role, acceptor: &Nonce, dialer: &Nonce) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(match role {
            Role::Dialer => b"quorate dialer",
            Role::Acceptor => b"quorate acceptor",
        });
        mac.update(acceptor);
        mac.update(dialer);
        Some(mac)
    }

    /// Proves to the other end that this one knows the secret.
    pub(crate) fn proof(&self, role: Role, acceptor: &Nonce, dialer: &Nonce) -> [u8; PROOF_BYTES] {
        let mac = self.mac(role, acceptor, dialer);
        // HMAC takes keys of any length.
        mac.map(|mac| mac.finalize().into_bytes().into()).unwrap_or_default()
    }

    /// Checks the other end's proof. Compares in constant time.
    pub(crate) fn proves(
        &self,
        role: Role,
        acceptor: &Nonce,
        dialer: &Nonce,
        proof: &[u8],
    ) -> bool {
        let mac = self.mac(role, acceptor, dialer);
        mac.is_some_and(|mac| mac.verify_slice(proof).is_ok())
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_enough_and_never_shown() -> Result<(), SecretError> {
        let secret = ClusterSecret::new(b"0123456789abcdef\n")?;
        assert_eq!(format!("{secret:?}"), "ClusterSecret(..)");
        assert_eq!(ClusterSecret::new(b"short  ").err(), Some(SecretError(5)));
        Ok(())
    }
}
