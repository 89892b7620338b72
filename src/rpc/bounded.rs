//! Connections accepted by the rpc port: bounded in number, in total and for each address.

use crate::sockets::Socket;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use quorate_tls::{Certificate, Stream as Secured};
use std::{
    collections::BTreeMap,
    future::ready,
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// Maximum of connections. A node has a few to each of the others, `quorate ctl` one for each call.
const CONNECTIONS_MAX: usize = 512;
/// Maximum of connections from one address, so that it cannot shut other nodes out.
const SOURCE_MAX: usize = 64;

/// Connections that are open, by address.
#[derive(Debug, Default)]
struct Open {
    all: usize,
    sources: BTreeMap<IpAddr, usize>,
}

impl Open {
    /// Counts one more connection, if the bounds allow it.
    fn add(&mut self, source: IpAddr) -> bool {
        let of_source = self.sources.get(&source).copied().unwrap_or(0);
        let fits = self.all < CONNECTIONS_MAX && of_source < SOURCE_MAX;
        if fits {
            self.all += 1;
            self.sources.insert(source, of_source + 1);
        }
        fits
    }

    fn remove(&mut self, source: IpAddr) {
        self.all -= 1;
        if let Some(count) = self.sources.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&source);
            }
        }
    }
}

/// A connection that is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    stream: Secured<S>,
    source: IpAddr,
    open: Arc<Mutex<Open>>,
}

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        self.open.lock().remove(self.source);
    }
}

/// The incoming connections within the bounds; others are closed at once.
pub(crate) fn bounded<S: Socket>(
    incoming: impl Stream<Item = (Secured<S>, IpAddr)>,
) -> impl Stream<Item = io::Result<Counted<S>>> {
    let open = Arc::new(Mutex::new(Open::default()));
    incoming.filter_map(move |(stream, source)| ready(count(stream, source, &open).map(Ok)))
}

fn count<S>(stream: Secured<S>, source: IpAddr, open: &Arc<Mutex<Open>>) -> Option<Counted<S>> {
    if !open.lock().add(source) {
        tracing::debug!(%source, "refused a connection to the rpc port: too many connections");
        return None;
    }
    Some(Counted { stream, source, open: Arc::clone(open) })
}

/// What TLS has found out about the other end of a connection, for its requests.
#[derive(Clone, Debug)]
pub(crate) enum TlsPeer {
    /// Nothing: the connection has no TLS.
    Plain,
    /// Its certificate.
    Shown(Option<Certificate>),
}

impl TlsPeer {
    /// Whether the other end may be a node at this host: without TLS any may.
    pub(crate) fn may_be(&self, host: &str) -> bool {
        match self {
            Self::Plain => true,
            Self::Shown(certificate) => certificate.as_ref().is_some_and(|it| it.names(host)),
        }
    }
}

/// Who makes a call to the rpc port, in the extensions of the call.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The address that its connection comes from.
    pub address: IpAddr,
    pub(crate) tls: TlsPeer,
}

impl<S> Counted<S> {
    /// What TLS has found out about the other end.
    fn tls_peer(&self) -> TlsPeer {
        match &self.stream {
            Secured::Plain(_) => TlsPeer::Plain,
            secured @ Secured::Tls(_) => TlsPeer::Shown(secured.peer_certificate()),
        }
    }
}

impl<S> Connected for Counted<S> {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        Caller { address: self.source, tls: self.tls_peer() }
    }
}

impl<S: Socket> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: Socket> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn one_address_does_not_shut_the_others_out() {
        let host = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        let mut open = Open::default();
        let taken = (0..1_000).filter(|_| open.add(host(1))).count();
        assert_eq!(taken, SOURCE_MAX);
        assert!(open.add(host(2)));
        open.remove(host(1));
        assert!(open.add(host(1)) && !open.add(host(1)));
        let taken = (10..10_000).filter(|number| open.add(host(*number))).count();
        assert_eq!(taken, CONNECTIONS_MAX - SOURCE_MAX - 1);
    }
}
