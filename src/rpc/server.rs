//! The rpc port: HTTP/2 settings of both ends, and the listener.

use crate::{bounded::bounded, door::Door, lane::FRAME_BYTES_MAX, sockets::Accept};
use futures::stream::unfold;
use std::{
    convert::Infallible,
    future::{Future, pending},
    io,
    net::{SocketAddr, TcpListener},
    time::Duration,
};
use tokio::sync::mpsc;
use tonic::{service::Routes, transport::Server};

/// Flow-control window of one stream, bytes: larger than the bandwidth-delay product within a site.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// Flow-control window of one connection, bytes.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// Largest HTTP/2 frame, bytes: it holds one frame of the links with its head.
pub(crate) const HTTP_FRAME_BYTES: u32 = 2 * FRAME_BYTES_MAX as u32;
/// Maximum of requests of one connection at once; a lane is one of them.
const STREAMS_MAX: u32 = 128;
/// After this time without input a connection is pinged, and after the same time again it is ended.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// A gRPC server with the settings of the rpc port.
#[must_use]
pub fn server() -> Server {
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(HTTP_FRAME_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
}

/// The rpc port cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// Address that cannot be bound.
        address: SocketAddr,
        /// The error of the system.
        error: std::io::Error,
    },
    /// Serving it has failed.
    #[error("the server of the rpc port failed: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// The listening rpc port. Bind it before the links are started, so that a peer that was dialed can
/// dial back.
#[derive(Debug)]
pub struct Listener<A = tokio::net::TcpListener> {
    listener: A,
    address: SocketAddr,
}

impl Listener {
    /// Listens at an address; port 0 selects any free one. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The address is in use, or does not belong to this machine.
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let bind_error = |error| ListenError::Bind { address, error };
        let listener = listen(address).map_err(bind_error)?;
        let address = listener.local_addr().map_err(bind_error)?;
        Ok(Self { listener, address })
    }
}

impl<A: Accept> Listener<A> {
    /// A listener of a simulated network.
    pub fn simulated(listener: A, address: SocketAddr) -> Self {
        Self { listener, address }
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the routes (`Routes::new(links.service())`, and others that are mounted) to
    /// authenticated peers, until `stop` resolves and the streams have ended;
    /// [`crate::Links::stop`] ends those of the links.
    ///
    /// # Errors
    /// Accepting connections fails.
    pub async fn serve(
        self,
        routes: Routes,
        door: Door,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ListenError> {
        let (let_in, streams) = mpsc::channel(1);
        let incoming = unfold(streams, async |mut streams| {
            let stream = streams.recv().await?;
            Some((stream, streams))
        });
        let router = server().add_routes(routes);
        let served = router.serve_with_incoming_shutdown(bounded(incoming), stop);
        // Not a separate task, so that the port is free when this returns or is dropped.
        let accepting = async {
            door.accept_all(self.listener, let_in).await;
            pending::<Infallible>().await
        };
        tokio::select! {
            served = served => Ok(served?),
            never = accepting => match never {},
        }
    }
}

/// Listens as tonic does: the port can be bound again at once after a stop.
fn listen(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}
