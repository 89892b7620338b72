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
//! proof cannot be sent back to the one who made it. This handshake neither encrypts nor signs what
//! follows on the connection: that is for TLS, which, where it is on, is below all this.

use crate::{
    chance,
    secret::{ClusterSecret, NONCE_BYTES, Nonce, PROOF_BYTES, Role},
};
use quorate_tls::Refusal;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Content types of a TLS record that a peer with TLS may begin with: an alert, a handshake.
const TLS_RECORDS: [u8; 2] = [0x15, 0x16];

/// First bytes from both ends: the protocol, and the version of this handshake.
const MAGIC: [u8; 8] = *b"QUORATE\x01";

/// Bytes of a TLS hello, at most.
const HELLO_BYTES_MAX: usize = 4096;

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
    /// The other end uses TLS, and this one does not.
    #[error("the peer uses TLS, and this end does not (setting rpc_tls)")]
    TlsOnlyThere,
    /// This end uses TLS, and the other one does not.
    #[error("the peer does not use TLS, and this end does (setting rpc_tls)")]
    TlsOnlyHere,
    /// One of the ends refuses the other's certificate, or they have no version of TLS in common.
    #[error("{0} (settings rpc_tls_certificate_file and rpc_tls_ca_file of both ends)")]
    Tls(Refusal),
    /// The connection failed.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        match Refusal::of(&error) {
            Some(Refusal::Plain) => Self::TlsOnlyHere,
            Some(refusal @ Refusal::Tls(_)) => Self::Tls(refusal),
            None => Self::Io(error),
        }
    }
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
    stream.flush().await?;
    expect_magic(stream).await?;
    let theirs: Nonce = read(stream).await?;
    let mine: Nonce = chance::random();
    let proof = secret.proof(Role::Dialer, &theirs, &mine);
    stream.write_all(&[mine, proof].concat()).await?;
    stream.flush().await?;
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
    if let Err(error) = expect_magic(stream).await {
        if matches!(error, HandshakeError::TlsOnlyThere) {
            // By these bytes the dialer sees that there is no TLS here. What it has sent is read
            // first, since a socket that is closed with unread bytes is reset.
            let _ = stream.read(&mut [0; HELLO_BYTES_MAX]).await?;
            stream.write_all(&MAGIC).await?;
            stream.shutdown().await?;
        }
        return Err(error);
    }
    let mine: Nonce = chance::random();
    stream.write_all(&MAGIC).await?;
    stream.write_all(&mine).await?;
    stream.flush().await?;
    let theirs: Nonce = read(stream).await?;
    let proof: [u8; PROOF_BYTES] = read(stream).await?;
    if !secret.proves(Role::Dialer, &mine, &theirs, &proof) {
        return Err(HandshakeError::WrongProof);
    }
    stream.write_all(&[ACCEPTED]).await?;
    stream.write_all(&secret.proof(Role::Acceptor, &mine, &theirs)).await?;
    stream.flush().await?;
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

/// Reads the first bytes of the other end.
async fn expect_magic<S: AsyncRead + Unpin>(stream: &mut S) -> Result<(), HandshakeError> {
    let [first] = read(stream).await?;
    if TLS_RECORDS.contains(&first) {
        return Err(HandshakeError::TlsOnlyThere);
    }
    let others: [u8; MAGIC.len() - 1] = read(stream).await?;
    let same = MAGIC.split_first() == Some((&first, others.as_slice()));
    if same { Ok(()) } else { Err(HandshakeError::OtherProtocol) }
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
