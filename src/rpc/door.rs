//! The rpc port's door: each connection proves that it comes from someone who knows the cluster secret
//! before anything else is read from it.

use crate::{
    handshake::{self, HandshakeError},
    secret::ClusterSecret,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{sleep, timeout},
};
use tower::Service;

/// Longest wait for the other end's half of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);
/// Handshakes in progress, at most; more connections wait to be accepted.
const HANDSHAKES_MAX: usize = 256;
/// Handshakes in progress with one address, at most; a further connection is closed.
const HANDSHAKES_BY_ADDRESS_MAX: usize = 32;
/// How long a wrong proof waits for its answer, so that secrets cannot be tried fast.
const REFUSAL_DELAY: Duration = Duration::from_millis(250);
/// Refused connections are logged this often, at most.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failed accept: there may be no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whether this node has been let in by a majority, which is told to who is refused.
type IsAdmitted = Arc<dyn Fn() -> bool + Send + Sync>;

/// Lets connections in.
#[derive(Clone)]
pub struct Door {
    secret: ClusterSecret,
    is_admitted: IsAdmitted,
    handshakes: Arc<Semaphore>,
    by_address: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    /// When a refusal was logged last.
    told: Arc<Mutex<Option<Instant>>>,
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
        let mut by_address = self.door.by_address.lock();
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

impl Door {
    /// A door for who knows the secret. `is_admitted` says whether this node has been let in by a
    /// majority of its cluster.
    pub fn new(
        secret: ClusterSecret,
        is_admitted: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            secret,
            is_admitted: Arc::new(is_admitted),
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            by_address: Arc::default(),
            told: Arc::default(),
        }
    }

    /// Accepts connections as long as somebody takes those that are let in.
    pub async fn accept_all(self, listener: TcpListener, let_in: mpsc::Sender<TcpStream>) {
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
                    tracing::warn!(%error, "a connection to the rpc port cannot be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Counts a handshake; `None` if there are too many with that address.
    fn begin(&self, address: IpAddr, permit: OwnedSemaphorePermit) -> Option<InProgress> {
        let mut by_address = self.by_address.lock();
        let count = by_address.entry(address).or_default();
        if *count >= HANDSHAKES_BY_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        Some(InProgress { door: self.clone(), address, _permit: permit })
    }

    fn tell(&self, address: IpAddr, error: &HandshakeError) {
        let mut told = self.told.lock();
        if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            tracing::warn!(%address, "refused a connection to the rpc port: {error}");
        }
    }
}

/// One connection's handshake.
async fn admit(mut stream: TcpStream, handshake: InProgress, let_in: mpsc::Sender<TcpStream>) {
    let door = handshake.door.clone();
    let opened = async {
        stream.set_nodelay(true)?;
        handshake::accept(&mut stream, &door.secret).await
    };
    match timeout(HANDSHAKE_TIMEOUT, opened).await {
        Ok(Ok(())) => {
            drop(handshake);
            // Closed when the port is.
            let _ = let_in.send(stream).await;
        }
        Ok(Err(error)) => {
            // A connection that ends early is a port scan, or a dialer that has given up.
            if !matches!(error, HandshakeError::Io(_)) {
                door.tell(handshake.address, &error);
            }
            if matches!(error, HandshakeError::WrongProof) {
                sleep(REFUSAL_DELAY).await;
                let told = handshake::refuse(&mut stream, (door.is_admitted)());
                // Who does not take the answer is refused all the same.
                let _ = timeout(HANDSHAKE_TIMEOUT, told).await;
            }
        }
        Err(_) => {}
    }
}

/// Opens connections to rpc ports, for `Endpoint::connect_with_connector`.
#[derive(Clone, Debug)]
pub struct Connector {
    secret: ClusterSecret,
}

impl Connector {
    /// A connector that knows the secret.
    #[must_use]
    pub fn new(secret: ClusterSecret) -> Self {
        Self { secret }
    }
}

type Connecting = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

impl Service<tonic::transport::Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: tonic::transport::Uri) -> Connecting {
        let secret = self.secret.clone();
        Box::pin(async move {
            let Some(authority) = uri.authority() else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let mut stream = TcpStream::connect(authority.as_str()).await?;
            stream.set_nodelay(true)?;
            handshake::dial(&mut stream, &secret).await.map_err(|error| match error {
                HandshakeError::Io(error) => error,
                error @ (HandshakeError::Refused { .. }
                | HandshakeError::WrongProof
                | HandshakeError::OtherProtocol) => io::Error::other(error),
            })?;
            Ok(TokioIo::new(stream))
        })
    }
}
