//! A connection with or without TLS, and what TLS has agreed on.

use crate::certificate::Certificate;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{TlsStream, rustls::CommonState};

/// A connection with or without TLS.
#[derive(Debug)]
pub enum Stream<S> {
    /// A connection without TLS.
    Plain(S),
    /// A connection with TLS. Boxed, since its buffers are large.
    Tls(Box<TlsStream<S>>),
}

impl<S> Stream<S> {
    /// The certificate of the other end, if it has shown one.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<Certificate> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => certificate(stream.get_ref().1),
        }
    }
}

fn certificate(state: &CommonState) -> Option<Certificate> {
    state.peer_certificates().and_then(|chain| chain.first()).map(Certificate::new)
}

/// What both ends of a TLS connection have agreed on, in RabbitMQ's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// `tlsv1.2` or `tlsv1.3`.
    pub protocol: &'static str,
    /// Such as `ecdhe_rsa`; `any` with TLS 1.3.
    pub key_exchange: String,
    /// Such as `aes_256_gcm`.
    pub cipher: String,
    /// The client's certificate, verified.
    pub certificate: Option<Certificate>,
}

impl Session {
    /// Of a connection whose handshake is done.
    #[must_use]
    pub fn of<S>(stream: &TlsStream<S>) -> Self {
        let state: &CommonState = stream.get_ref().1;
        let suite = state.negotiated_cipher_suite();
        let is_1_3 = suite.is_some_and(|suite| suite.tls13().is_some());
        let name = suite.map(|suite| format!("{:?}", suite.suite())).unwrap_or_default();
        let (key_exchange, cipher) = parts(&name);
        let protocol = if is_1_3 { "tlsv1.3" } else { "tlsv1.2" };
        Self { protocol, key_exchange, cipher, certificate: certificate(state) }
    }
}

/// Key exchange and cipher of a suite such as `TLS13_AES_256_GCM_SHA384` or
/// `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`. The hash at the end is left out: RabbitMQ shows `aead`
/// for all that are offered here.
fn parts(suite: &str) -> (String, String) {
    let name = suite.to_lowercase();
    let name = name.rsplit_once("_sha").map_or(name.as_str(), |(name, _)| name);
    match (name.strip_prefix("tls13_"), name.strip_prefix("tls_")) {
        (Some(cipher), _) => ("any".to_owned(), cipher.to_owned()),
        (None, Some(rest)) => {
            let (key_exchange, cipher) = rest.split_once("_with_").unwrap_or(("", rest));
            (key_exchange.to_owned(), cipher.to_owned())
        }
        (None, None) => (String::new(), name.to_owned()),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_shown_as_rabbitmq_does() {
        let split = |suite, key_exchange: &str, cipher: &str| {
            assert_eq!(parts(suite), (key_exchange.to_owned(), cipher.to_owned()));
        };
        split("TLS13_AES_256_GCM_SHA384", "any", "aes_256_gcm");
        split("TLS13_CHACHA20_POLY1305_SHA256", "any", "chacha20_poly1305");
        split("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ecdhe_rsa", "aes_128_gcm");
    }
}
