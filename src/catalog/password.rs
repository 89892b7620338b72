//! Stored passwords: RabbitMQ's salted hashes, so that its definitions can be imported (ACL-23).

use md5::Md5;
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;

/// Bytes of salt in front of a hash.
const SALT_BYTES: usize = 4;

/// How a password was hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// SHA-256, the default.
    #[default]
    Sha256,
    /// SHA-512, for imported hashes.
    Sha512,
    /// MD5, for hashes imported from very old brokers.
    Md5,
}

impl HashAlgorithm {
    /// The name in RabbitMQ's definitions.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "rabbit_password_hashing_sha256",
            Self::Sha512 => "rabbit_password_hashing_sha512",
            Self::Md5 => "rabbit_password_hashing_md5",
        }
    }

    /// The algorithm of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Sha256, Self::Sha512, Self::Md5].into_iter().find(|one| one.name() == name)
    }

    fn digest(self, salt: &[u8], password: &[u8]) -> Vec<u8> {
        fn of<D: Digest>(salt: &[u8], password: &[u8]) -> Vec<u8> {
            D::new().chain_update(salt).chain_update(password).finalize().to_vec()
        }
        match self {
            Self::Sha256 => of::<Sha256>(salt, password),
            Self::Sha512 => of::<Sha512>(salt, password),
            Self::Md5 => of::<Md5>(salt, password),
        }
    }
}

/// A password's hash: 4 bytes of salt, then the digest of salt and password. If it is empty, nobody
/// can log in with it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PasswordHash {
    /// The algorithm of the digest.
    pub algorithm: HashAlgorithm,
    /// Salt and digest.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for PasswordHash {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordHash").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl PasswordHash {
    /// Hashes a password; an empty one gives the empty hash.
    #[must_use]
    pub fn of(algorithm: HashAlgorithm, salt: [u8; SALT_BYTES], password: &[u8]) -> Self {
        if password.is_empty() {
            return Self { algorithm, bytes: Vec::new() };
        }
        let mut bytes = salt.to_vec();
        bytes.extend(algorithm.digest(&salt, password));
        Self { algorithm, bytes }
    }

    /// True if the hash is that of the password. The time does not depend on where they differ, nor
    /// on whether the hash is empty; an empty password is always refused (CONN-13).
    #[must_use]
    pub fn is_of(&self, password: &[u8]) -> bool {
        // An empty hash equals no digest.
        let parts = self.bytes.split_at_checked(SALT_BYTES);
        let (salt, digest) = parts.unwrap_or((&[0; SALT_BYTES], &[]));
        let equal: bool = self.algorithm.digest(salt, password).ct_eq(digest).into();
        equal && !password.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acl_23_a_hash_is_salt_and_digest_and_fits_its_password_only() {
        for algorithm in [HashAlgorithm::Sha256, HashAlgorithm::Sha512, HashAlgorithm::Md5] {
            let hash = PasswordHash::of(algorithm, [1, 2, 3, 4], b"secret");
            assert_eq!(hash.bytes.get(..4), Some(&[1, 2, 3, 4][..]));
            assert!(hash.is_of(b"secret"));
            assert!(!hash.is_of(b"Secret") && !hash.is_of(b""));
            assert_eq!(HashAlgorithm::parse(algorithm.name()), Some(algorithm));
        }
        assert_eq!(HashAlgorithm::parse("rabbit_password_hashing_rot13"), None);
    }

    /// The example in RabbitMQ's guide on passwords: `test12` with salt 908D C60A.
    #[test]
    fn acl_23_the_hash_of_rabbitmqs_own_example() {
        let hash = PasswordHash::of(HashAlgorithm::Sha256, [0x90, 0x8d, 0xc6, 0x0a], b"test12");
        let hex: String = hash.bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        let expected = "908DC60AA5B924B3096B8897D65A3B5F80FA5DB62A94B83122CDF4F8FEAD10D515D8F391";
        assert_eq!(hex, expected);
    }

    #[test]
    fn acl_23_conn_13_an_empty_hash_or_password_lets_nobody_in() {
        let none = PasswordHash::default();
        assert!(!none.is_of(b"") && !none.is_of(b"secret"));
        let empty = PasswordHash::of(HashAlgorithm::Sha256, [0; 4], b"");
        assert_eq!(empty.bytes, Vec::<u8>::new());
        let short = PasswordHash { algorithm: HashAlgorithm::Md5, bytes: vec![1, 2] };
        assert!(!short.is_of(b"secret"));
    }
}
