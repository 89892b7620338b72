//! The ports of AMQP clients. While the node is drained they are closed, as RabbitMQ's are in maintenance
//! mode: the system then refuses connections, so that clients try another node at once, and load balancers
//! that test the port see it too. A close with 320 after the login would cost each client a login, and
//! some clients do not try another node after it.

use crate::tls::TlsListener;
use quorate_tls::{Acceptor, LoginFrom};
use socket2::SockRef;
use std::{future::pending, io, net::SocketAddr, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::sleep,
};

/// How long to wait before what has failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The ports of AMQP clients.
#[derive(Debug)]
pub struct Listeners {
    /// The port without TLS.
    pub plain: TcpListener,
    /// The port with TLS.
    pub tls: Option<TlsListener>,
}

impl Listeners {
    /// The next client, and the listener that it came to if that is the one with TLS. Cancel-safe.
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, Option<&TlsListener>)> {
        let Some(tls) = &self.tls else {
            return self.plain.accept().await.map(|(stream, peer)| (stream, peer, None));
        };
        tokio::select! {
            accepted = self.plain.accept() => accepted.map(|(stream, peer)| (stream, peer, None)),
            accepted = tls.listener.accept() => {
                accepted.map(|(stream, peer)| (stream, peer, Some(tls)))
            }
        }
    }

    /// Limits the receive buffers of clients that are accepted from now on; 0: the system decides.
    fn limit_receive_buffers(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let tls = self.tls.as_ref().map(|tls| &tls.listener);
        for listener in [Some(&self.plain), tls].into_iter().flatten() {
            if let Err(error) = SockRef::from(listener).set_recv_buffer_size(bytes) {
                tracing::warn!(%error, bytes, "cannot set the size of the receive buffers of clients");
            }
        }
    }
}

/// Ports that are closed, and what is needed to open them again.
#[derive(Debug)]
struct Closed {
    plain: SocketAddr,
    tls: Option<(SocketAddr, Acceptor, LoginFrom)>,
}

impl Closed {
    /// The addresses of open ports.
    fn of(open: &Listeners) -> io::Result<Self> {
        let tls = open.tls.as_ref().map(|tls| {
            let (acceptor, login_from) = tls.ends();
            tls.listener.local_addr().map(|address| (address, acceptor, login_from))
        });
        Ok(Self { plain: open.plain.local_addr()?, tls: tls.transpose()? })
    }

    async fn open(&self) -> io::Result<Listeners> {
        let plain = TcpListener::bind(self.plain).await?;
        let Some((address, acceptor, tls_login_from)) = &self.tls else {
            return Ok(Listeners { plain, tls: None });
        };
        let listener = TcpListener::bind(address).await?;
        let (acceptor, tls_login_from) = (acceptor.clone(), *tls_login_from);
        Ok(Listeners { plain, tls: Some(TlsListener { listener, acceptor, tls_login_from }) })
    }
}

/// How the ports follow the draining of the node.
#[derive(Debug)]
pub struct PortSwitch {
    /// Whether the node is drained: the ports are to be closed.
    pub drained: watch::Receiver<bool>,
    /// Whether the ports are closed; the ports say so.
    pub closed: watch::Sender<bool>,
}

impl PortSwitch {
    /// Resolves when the ports are to be closed (true) or opened again. Cancel-safe.
    pub(crate) async fn turned(&mut self, are_closed: bool) -> bool {
        // A copy, since what is borrowed must not be held while this waits.
        let turned =
            self.drained.wait_for(|drained| *drained != are_closed).await.map(|drained| *drained);
        match turned {
            Ok(drained) => drained,
            // Nobody is left to drain the node.
            Err(_) => pending().await,
        }
    }
}

#[derive(Debug)]
enum State {
    Open(Listeners),
    Closed(Closed),
}

/// The ports, open or closed.
#[derive(Debug)]
pub(crate) struct Ports {
    receive_buffer: usize,
    state: State,
}

impl Ports {
    /// Open ports, whose clients have receive buffers of this size.
    pub(crate) fn new(open: Listeners, receive_buffer: usize) -> Self {
        open.limit_receive_buffers(receive_buffer);
        Self { receive_buffer, state: State::Open(open) }
    }

    /// The next client; never, while the ports are closed. Cancel-safe.
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, Option<&TlsListener>)> {
        match &self.state {
            State::Open(listeners) => listeners.accept().await,
            State::Closed(_) => pending().await,
        }
    }

    pub(crate) fn are_closed(&self) -> bool {
        matches!(self.state, State::Closed(_))
    }

    /// Closes the ports. After a failure they are open, and the caller should try again.
    pub(crate) async fn close(&mut self) {
        let State::Open(open) = &self.state else { return };
        match Closed::of(open) {
            Ok(closed) => self.state = State::Closed(closed),
            Err(error) => {
                tracing::error!(%error, "cannot close the port of clients, retrying");
                sleep(RETRY).await;
            }
        }
    }

    /// Opens closed ports again. After a failure they are closed, and the caller should try again.
    pub(crate) async fn open(&mut self) {
        let State::Closed(closed) = &self.state else { return };
        match closed.open().await {
            Ok(open) => {
                open.limit_receive_buffers(self.receive_buffer);
                self.state = State::Open(open);
            }
            Err(error) => {
                let address = closed.plain;
                tracing::error!(%address, %error, "cannot open the port of clients again, retrying");
                sleep(RETRY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn closed_ports_refuse_connections_and_are_opened_again() {
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = plain.local_addr().unwrap();
        let mut ports = Ports::new(Listeners { plain, tls: None }, 65_536);
        let open = TcpStream::connect(address).await.unwrap();
        let (_accepted, peer, tls) = ports.accept().await.unwrap();
        assert_eq!(peer, open.local_addr().unwrap());
        assert!(tls.is_none());
        ports.close().await;
        assert!(ports.are_closed());
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        // The connection that was accepted before does not keep the port.
        ports.open().await;
        assert!(!ports.are_closed());
        TcpStream::connect(address).await.unwrap();
        ports.accept().await.unwrap();
    }
}
