//! What a connection to the rpc port begins with, before HTTP/2: both ends prove that they know the
//! cluster secret, and neither sends it.
//!
//! 1. The dialer sends [`MAGIC`].
//! 2. The acceptor sends `MAGIC` and a nonce.
//! 3. The dialer sends a nonce of its own and its proof: HMAC-SHA-256 under the secret of its role and
//!    both nonces.
//! 4. The acceptor sends a verdict and its own proof, or zeros.
//!
//! The nonces are fresh, so what was heard on one connection opens no other; the roles differ, so a
//! proof cannot be sent back to the one who made it. What follows on the connection is neither
//! encrypted nor signed: that is for TLS.

use crate::{
    chance,
    secret::{ClusterSecret, NONCE_BYTES, Nonce, PROOF_BYTES, Role},
};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// First bytes from both ends: the protocol, and the version of this handshake.
const MAGIC: [u8; 8] = *b"QUORATE\x01";

/// The acceptor's last message: its verdict on the dialer's proof, and its own proof.
const VERDICT_BYTES: usize = 1 + PROOF_BYTES;

/// The verdict on the dialer's proof.
const ACCEPTED: u8 = 0;
/// The proof is wrong.
const REFUSED: u8 = 1;
/// The proof is wrong, and the acceptor is a node that a majority has let in.
const REFUSED_BY_ADMITTED: u8 = 2;

/// Why a connection was not opened.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The acceptor says that the dialer has another secret.
    #[error("the cluster secret does not match")]
    Refused {
        /// The acceptor has been let in by a majority of its cluster.
        admitted: bool,
    },
    /// The other end has not proved that it knows the secret.
    #[error("the peer does not know the cluster secret")]
    WrongProof,
    /// The other end speaks another protocol, or another version of the handshake.
    #[error("the peer does not speak Quorate's protocol between nodes")]
    OtherProtocol,
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The dialer's half.
///
/// # Errors
/// Both ends do not have the same secret, or the connection fails.
pub(crate) async fn dial<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    secret: &ClusterSecret,
) -> Result<(), HandshakeError> {
    stream.write_all(&MAGIC).await?;
    let mut greeting = [0; MAGIC.len()];
    stream.read_exact(&mut greeting).await?;
    if greeting != MAGIC {
        return Err(HandshakeError::OtherProtocol);
    }
    let theirs: Nonce = read(stream).await?;
    let mine: Nonce = chance::random();
    let proof = secret.proof(Role::Dialer, &theirs, &mine);
    stream.write_all(&[mine, proof].concat()).await?;
    let verdict: [u8; VERDICT_BYTES] = read(stream).await?;
    let [verdict, proof @ ..] = verdict;
    match verdict {
        ACCEPTED if secret.proves(Role::Acceptor, &theirs, &mine, &proof) => Ok(()),
        ACCEPTED => Err(HandshakeError::WrongProof),
        REFUSED => Err(HandshakeError::Refused { admitted: false }),
        REFUSED_BY_ADMITTED => Err(HandshakeError::Refused { admitted: true }),
        _ => Err(HandshakeError::OtherProtocol),
    }
}

/// The acceptor's first half: waits for the dialer's proof. [`refuse`] reports a wrong one.
///
/// # Errors
/// The proof is wrong, or the connection fails.
pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    secret: &ClusterSecret,
) -> Result<(), HandshakeError> {
    let greeting: [u8; MAGIC.len()] = read(stream).await?;
    if greeting != MAGIC {
        return Err(HandshakeError::OtherProtocol);
    }
    let mine: Nonce = chance::random();
    stream.write_all(&MAGIC).await?;
    stream.write_all(&mine).await?;
    let theirs: Nonce = read(stream).await?;
    let proof: [u8; PROOF_BYTES] = read(stream).await?;
    if !secret.proves(Role::Dialer, &mine, &theirs, &proof) {
        return Err(HandshakeError::WrongProof);
    }
    stream.write_all(&[ACCEPTED]).await?;
    stream.write_all(&secret.proof(Role::Acceptor, &mine, &theirs)).await?;
    Ok(())
}

/// Informs a dialer that its proof is wrong.
///
/// # Errors
/// The connection fails.
pub(crate) async fn refuse<S: AsyncWrite + Unpin>(
    stream: &mut S,
    admitted: bool,
) -> io::Result<()> {
    let mut verdict = [0; VERDICT_BYTES];
    verdict[0] = if admitted { REFUSED_BY_ADMITTED } else { REFUSED };
    stream.write_all(&verdict).await?;
    stream.shutdown().await
}

async fn read<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

const _: () = assert!(NONCE_BYTES == PROOF_BYTES, "a nonce and a proof are sent as one array");

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use tokio::io::duplex;

    fn secret(text: &[u8]) -> ClusterSecret {
        ClusterSecret::new(text).unwrap()
    }

    /// Runs both halves with these secrets; the results of the dialer and the acceptor.
    async fn meet(
        dialer: &ClusterSecret,
        acceptor: &ClusterSecret,
    ) -> (Result<(), HandshakeError>, Result<(), HandshakeError>) {
        let (mut near, mut far) = duplex(1024);
        let accepting = async {
            let accepted = accept(&mut far, acceptor).await;
            if matches!(accepted, Err(HandshakeError::WrongProof)) {
                refuse(&mut far, true).await.unwrap();
            }
            accepted
        };
        tokio::join!(dial(&mut near, dialer), accepting)
    }

    #[tokio::test]
    async fn only_the_same_secret_gets_in() {
        let (ours, other) = (secret(b"0123456789abcdef"), secret(b"0123456789abcdeg"));
        let (dialed, accepted) = meet(&ours, &ours).await;
        assert!(dialed.is_ok() && accepted.is_ok(), "{dialed:?} {accepted:?}");
        let (dialed, accepted) = meet(&other, &ours).await;
        assert!(matches!(dialed, Err(HandshakeError::Refused { admitted: true })), "{dialed:?}");
        assert!(matches!(accepted, Err(HandshakeError::WrongProof)), "{accepted:?}");
    }

    /// An impostor that says "accepted" without a proof is detected, also one that sends the
    /// dialer's own proof back.
    #[tokio::test]
    async fn an_acceptor_must_prove_itself_too() {
        let ours = secret(b"0123456789abcdef");
        for reflects in [false, true] {
            let (mut near, mut far) = duplex(1024);
            let impostor = async {
                let _: [u8; 8] = read(&mut far).await.unwrap();
                far.write_all(&MAGIC).await.unwrap();
                far.write_all(&[7; NONCE_BYTES]).await.unwrap();
                let _: Nonce = read(&mut far).await.unwrap();
                let proof: [u8; PROOF_BYTES] = read(&mut far).await.unwrap();
                let sent = if reflects { proof } else { [0; PROOF_BYTES] };
                far.write_all(&[ACCEPTED]).await.unwrap();
                far.write_all(&sent).await.unwrap();
            };
            let (dialed, ()) = tokio::join!(dial(&mut near, &ours), impostor);
            assert!(matches!(dialed, Err(HandshakeError::WrongProof)), "{dialed:?}");
        }
    }

    /// A recording of one connection cannot open another, and the secret itself is never sent.
    #[tokio::test]
    async fn a_recording_opens_nothing() {
        let ours = secret(b"0123456789abcdef");
        let (mut near, mut far) = duplex(1024);
        let recording = async {
            let _: [u8; 8] = read(&mut far).await.unwrap();
            far.write_all(&MAGIC).await.unwrap();
            far.write_all(&[7; NONCE_BYTES]).await.unwrap();
            let proof: [u8; NONCE_BYTES + PROOF_BYTES] = read(&mut far).await.unwrap();
            drop(far);
            proof
        };
        let (_, recorded) = tokio::join!(dial(&mut near, &ours), recording);
        assert!(!recorded.windows(16).any(|window| window == b"0123456789abcdef"));
        let (mut near, mut far) = duplex(1024);
        let replay = async {
            near.write_all(&MAGIC).await.unwrap();
            let _: [u8; 8] = read(&mut near).await.unwrap();
            let _: Nonce = read(&mut near).await.unwrap();
            near.write_all(&recorded).await.unwrap();
        };
        let (accepted, ()) = tokio::join!(accept(&mut far, &ours), replay);
        assert!(matches!(accepted, Err(HandshakeError::WrongProof)), "{accepted:?}");
    }

    #[tokio::test]
    async fn another_protocol_is_told_from_another_secret() {
        let ours = secret(b"0123456789abcdef");
        let (mut near, mut far) = duplex(1024);
        near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let accepted = accept(&mut far, &ours).await;
        assert!(matches!(accepted, Err(HandshakeError::OtherProtocol)), "{accepted:?}");
    }
}
