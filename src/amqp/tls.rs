//! AMQP over TLS: the handshake before the first byte of AMQP, and the user of a client's certificate.

use crate::{
    client::{Arrival, serve_client},
    handshakes::Place,
};
use quorate_client::{Broker, TlsReport};
use quorate_tls::{Acceptor, LoginFrom, Session};
use quorate_types::ShortString;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout_at,
};

/// The port of AMQP clients with TLS.
#[derive(Debug)]
pub struct TlsListener {
    /// The port.
    pub listener: TcpListener,
    /// The node's end of TLS.
    pub acceptor: Acceptor,
    /// The part of a client's certificate that is its user for the mechanism EXTERNAL (CONN-06).
    pub tls_login_from: LoginFrom,
}

impl TlsListener {
    pub(crate) fn ends(&self) -> (Acceptor, LoginFrom) {
        (self.acceptor.clone(), self.tls_login_from)
    }
}

/// What a client's TLS handshake has agreed on.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) report: Box<TlsReport>,
    /// The user that its certificate names.
    pub(crate) user: Option<ShortString>,
}

impl Tls {
    fn of(session: Session, login_from: LoginFrom) -> Self {
        let Session { protocol, key_exchange, cipher, certificate } = session;
        let user = certificate.as_ref().and_then(|certificate| certificate.user(login_from));
        // A longer name is no user's.
        let user = user.and_then(|user| ShortString::try_from(user.as_str()).ok());
        let report = TlsReport {
            protocol,
            key_exchange,
            cipher,
            peer_subject: certificate.as_ref().map(|it| it.subject()).unwrap_or_default(),
            peer_issuer: certificate.as_ref().map(|it| it.issuer()).unwrap_or_default(),
            peer_validity: certificate.as_ref().map(|it| it.validity()).unwrap_or_default(),
        };
        Self { report: Box::new(report), user }
    }
}

/// Serves one client of the port with TLS.
pub(crate) async fn serve_tls_client<B: Broker>(
    stream: TcpStream,
    (acceptor, login_from): (Acceptor, LoginFrom),
    arrival: Arrival,
    broker: B,
    mut place: Place,
    mut stop: watch::Receiver<bool>,
) {
    let peer = arrival.peer;
    let accepted = tokio::select! {
        accepted = timeout_at(arrival.until, acceptor.accept(stream)) => accepted,
        _ = stop.wait_for(|stops| *stops) => return,
        () = place.taken() => return,
    };
    match accepted {
        Ok(Ok(stream)) => {
            let tls = Some(Tls::of(Session::of(&stream), login_from));
            serve_client(stream, Arrival { tls, ..arrival }, broker, place, stop).await;
        }
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            tracing::debug!(%peer, %error, "connection lost before TLS was agreed on");
        }
        Ok(Err(error)) => tracing::info!(%peer, %error, "TLS handshake failed"),
        Err(_) => tracing::info!(%peer, "TLS handshake timeout"),
    }
}
