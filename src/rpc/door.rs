//! Access to the rpc port: each connection must prove that it knows the cluster secret before
//! anything else is read from it.
//!
//! All services are behind the handshake, so calls carry no credentials. Handshakes are bounded in
//! number, in number for each address, and in time. A wrong proof is answered late and logged.
//! With TLS (setting rpc_tls) it is below all that: both ends show certificates of one CA. Without it
//! nothing is encrypted after the handshake, and the rpc port belongs on a trusted network.

use crate::{
    handshake::{self, HandshakeError},
    secret::ClusterSecret,
    sockets::{Accept, Socket, connect_tcp},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use quorate_tls::{Acceptor, Dialer, Stream};
use quorate_types::Source;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{sleep, timeout, timeout_at},
};
use tower::Service;

/// Longest wait for the other end's half of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum of handshakes in progress; more connections wait to be accepted.
const HANDSHAKES_MAX: usize = 256;
/// Maximum of handshakes in progress with one address, and with one source; a further connection is
/// closed. Nodes may share a source (one /64), so its maximum is higher.
const HANDSHAKES_OF_ADDRESS_MAX: usize = 32;
const HANDSHAKES_OF_SOURCE_MAX: usize = 128;
/// Delay of the answer to a wrong proof, so that secrets cannot be tried fast.
const REFUSAL_DELAY: Duration = Duration::from_millis(250);
/// Refused connections are logged this often, at most.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a failed accept: there may be no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whether a majority has admitted this node; peers that it refuses are informed of that.
type IsAdmitted = Arc<dyn Fn() -> bool + Send + Sync>;

/// Authenticates incoming connections.
#[derive(Clone)]
pub struct Door {
    secret: ClusterSecret,
    tls: Option<Acceptor>,
    is_admitted: IsAdmitted,
    handshakes: Arc<Semaphore>,
    counts: Arc<Mutex<Counts>>,
    /// When a refusal was logged last.
    logged_at: Arc<Mutex<Option<Instant>>>,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Door")
    }
}

/// A handshake in progress with an address; counted until it is dropped.
struct InProgress {
    door: Door,
    address: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.door.counts.lock().remove(self.address);
    }
}

/// Handshakes in progress.
#[derive(Debug, Default)]
struct Counts {
    by_address: BTreeMap<IpAddr, usize>,
    by_source: BTreeMap<Source, usize>,
}

impl Counts {
    /// Counts one more handshake; false if its address or its source has too many.
    fn add(&mut self, address: IpAddr) -> bool {
        let source = Source::of(address);
        let of_address = self.by_address.get(&address).copied().unwrap_or(0);
        let of_source = self.by_source.get(&source).copied().unwrap_or(0);
        let fits = of_address < HANDSHAKES_OF_ADDRESS_MAX && of_source < HANDSHAKES_OF_SOURCE_MAX;
        if fits {
            self.by_address.insert(address, of_address + 1);
            self.by_source.insert(source, of_source + 1);
        }
        fits
    }

    fn remove(&mut self, address: IpAddr) {
        count_down(&mut self.by_address, address);
        count_down(&mut self.by_source, Source::of(address));
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl Door {
    /// A door for peers that know the secret, over TLS if there is an acceptor. `is_admitted` says whether a majority of the cluster
    /// has admitted this node.
    pub fn new(
        secret: ClusterSecret,
        tls: Option<Acceptor>,
        is_admitted: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            secret,
            tls,
            is_admitted: Arc::new(is_admitted),
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            counts: Arc::default(),
            logged_at: Arc::default(),
        }
    }

    /// Accepts connections and passes on those that are authenticated, each with its address, as
    /// long as the receiver exists.
    pub async fn accept_all<A: Accept>(
        self,
        listener: A,
        let_in: mpsc::Sender<(Stream<A::Stream>, IpAddr)>,
    ) {
        loop {
            let Ok(permit) = Arc::clone(&self.handshakes).acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = let_in.closed() => return,
            };
            match accepted {
                Ok((stream, address)) => {
                    let address = address.ip().to_canonical();
                    if let Some(in_progress) = self.begin(address, permit) {
                        tokio::spawn(admit(stream, in_progress, let_in.clone()));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to the rpc port");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Counts a handshake; `None` if its address or its source has too many.
    fn begin(&self, address: IpAddr, permit: OwnedSemaphorePermit) -> Option<InProgress> {
        let counted = self.counts.lock().add(address);
        counted.then(|| InProgress { door: self.clone(), address, _permit: permit })
    }

    fn log_refusal(&self, address: IpAddr, error: &HandshakeError) {
        // A connection that ends early is a port scan, or a dialer that has given up.
        if matches!(error, HandshakeError::Io(_)) {
            return;
        }
        let mut logged = self.logged_at.lock();
        if logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            *logged = Some(Instant::now());
            tracing::warn!(%address, "refused a connection to the rpc port: {error}");
        }
    }
}

/// One connection's handshake.
async fn admit<S: Socket>(
    stream: S,
    handshake: InProgress,
    let_in: mpsc::Sender<(Stream<S>, IpAddr)>,
) {
    let (door, address) = (handshake.door.clone(), handshake.address);
    let until = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut stream = match timeout_at(until, secured(stream, door.tls.as_ref())).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return door.log_refusal(address, &error.into()),
        Err(_) => return,
    };
    match timeout_at(until, handshake::accept(&mut stream, &door.secret)).await {
        Ok(Ok(())) => {
            drop(handshake);
            // The receiver is closed when the port is.
            let _ = let_in.send((stream, address)).await;
        }
        Ok(Err(error)) => {
            door.log_refusal(address, &error);
            if matches!(error, HandshakeError::WrongProof) {
                sleep(REFUSAL_DELAY).await;
                let refused = handshake::refuse(&mut stream, (door.is_admitted)());
                // A peer that does not read the answer is refused nevertheless.
                let _ = timeout(HANDSHAKE_TIMEOUT, refused).await;
            }
        }
        Err(_) => {}
    }
}

/// The accepted stream, after its TLS handshake if there is TLS.
async fn secured<S: Socket>(stream: S, tls: Option<&Acceptor>) -> io::Result<Stream<S>> {
    Ok(match tls {
        None => Stream::Plain(stream),
        Some(tls) => Stream::Tls(Box::new(tls.accept(stream).await?)),
    })
}

/// The dialing end of an opened connection: TLS if there is a dialer, then the secret.
///
/// # Errors
/// Both ends do not fit each other, or the connection fails.
pub(crate) async fn knock<S: Socket>(
    stream: S,
    address: &str,
    tls: Option<&Dialer>,
    secret: &ClusterSecret,
) -> Result<Stream<S>, HandshakeError> {
    let mut stream = match tls {
        None => Stream::Plain(stream),
        Some(tls) => Stream::Tls(Box::new(tls.dial(host_of(address), stream).await?)),
    };
    handshake::dial(&mut stream, secret).await?;
    Ok(stream)
}

/// The host of an address `host:port`, which the certificate of the node there names.
pub(crate) fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Opens connections to rpc ports, for `Endpoint::connect_with_connector`.
#[derive(Clone, Debug)]
pub struct Connector {
    secret: ClusterSecret,
    tls: Option<Dialer>,
}

impl Connector {
    /// A connector that knows the secret, and uses TLS if there is a dialer.
    #[must_use]
    pub fn new(secret: ClusterSecret, tls: Option<Dialer>) -> Self {
        Self { secret, tls }
    }
}

type Connecting = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream<TcpStream>>>> + Send>>;

impl Service<tonic::transport::Uri> for Connector {
    type Response = TokioIo<Stream<TcpStream>>;
    type Error = io::Error;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: tonic::transport::Uri) -> Connecting {
        let Self { secret, tls } = self.clone();
        Box::pin(async move {
            let Some(authority) = uri.authority() else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let address = authority.as_str();
            let stream = connect_tcp(address).await?;
            let opened = knock(stream, address, tls.as_ref(), &secret).await;
            let stream = opened.map_err(|error| match error {
                HandshakeError::Io(error) => error,
                error @ (HandshakeError::Refused { .. }
                | HandshakeError::WrongProof
                | HandshakeError::TlsOnlyHere
                | HandshakeError::TlsOnlyThere
                | HandshakeError::Tls(_)
                | HandshakeError::OtherProtocol) => io::Error::other(error),
            })?;
            Ok(TokioIo::new(stream))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn a_host_is_named_without_its_port() {
        let hosts = ["one:7672", "127.0.0.1:1", "[::1]:7672"].map(host_of);
        assert_eq!(hosts, ["one", "127.0.0.1", "::1"]);
    }

    #[test]
    fn neither_an_address_nor_a_network_takes_all_handshakes() {
        let mut counts = Counts::default();
        let v4 = |number| IpAddr::V4(Ipv4Addr::from_bits(number));
        let v6 = |number: u128| IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8 << 96) | number));
        assert_eq!((0..999).filter(|_| counts.add(v4(1))).count(), HANDSHAKES_OF_ADDRESS_MAX);
        assert!(counts.add(v4(2)));
        let taken = (0..9_999).filter(|number| counts.add(v6(*number))).count();
        assert_eq!(taken, HANDSHAKES_OF_SOURCE_MAX);
        assert!(counts.add(v6(1 << 64)), "another network");
        counts.remove(v6(0));
        assert!(counts.add(v6(77_777)) && !counts.add(v6(88_888)));
        (0..HANDSHAKES_OF_ADDRESS_MAX).for_each(|_| counts.remove(v4(1)));
        assert!(!counts.by_address.contains_key(&v4(1)) && counts.add(v4(1)));
    }
}
