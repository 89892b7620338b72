//! The sockets under the links: TCP's, or those of a simulated network.

use futures::future::BoxFuture;
use std::{future::Future, io, net::SocketAddr};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};

/// A connection's two directions.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Socket for S {}

/// A listener.
pub trait Accept: Send + Sync + 'static {
    /// The type of its connections.
    type Stream: Socket;

    /// Waits for the next connection; returns it with its source. Cancel-safe.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = Self::accept(self).await?;
        // This fails for a connection that has ended, and so will its handshake.
        let _ = stream.set_nodelay(true);
        Ok((stream, address))
    }
}

/// Opens a connection of a simulated network to an address.
pub type SimulatedConnect =
    Box<dyn Fn(String) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> + Send + Sync>;

/// The network over which the other nodes are reached.
pub(crate) enum Network {
    Tcp,
    Simulated(SimulatedConnect),
}

/// Opens a TCP connection without Nagle's algorithm, so that small messages are sent at once.
pub(crate) async fn connect_tcp(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
