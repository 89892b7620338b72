//! Accepting clients, and letting all of them go.

use crate::client::{Addresses, serve_client};
use quorate_broker::Broker;
use std::{io, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

/// How long a stop waits for clients to agree to their close (CONN-29).
const STOP_MAX: Duration = Duration::from_secs(3);

/// How long to wait after an accept that failed for want of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves AMQP 0-9-1 clients on `listener`, at most `connections_max` at once, handshakes included:
/// at the bound, clients wait in the listen queue until one ends. Once `full` is true nobody is let
/// in any more, and who connects is refused by the system; once `shutdown` is true every connection
/// is closed with 320 (CONN-29). Returns when they are gone, 3 s after that at the latest.
pub async fn serve(
    listener: TcpListener,
    broker: Broker,
    connections_max: usize,
    mut full: watch::Receiver<bool>,
    mut shutdown: watch::Receiver<bool>,
) {
    let stop = shutdown.clone();
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            () = turned(&mut full) => break,
            () = turned(&mut shutdown) => break,
            Some(_) = clients.join_next() => {}
            accepted = listener.accept(), if clients.len() < connections_max => match accepted {
                Ok((stream, peer)) => match addresses(&stream, peer) {
                    Ok(addresses) => {
                        let client = serve_client(stream, addresses, broker.clone(), stop.clone());
                        clients.spawn(client);
                    }
                    Err(error) => tracing::debug!(%peer, %error, "client gone at once"),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client");
                    sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(listener);
    loop {
        tokio::select! {
            () = turned(&mut shutdown) => break,
            Some(_) = clients.join_next() => {}
        }
    }
    let all = async { while clients.join_next().await.is_some() {} };
    if timeout(STOP_MAX, all).await.is_err() {
        tracing::warn!(clients = clients.len(), "clients that did not agree to their close");
        clients.abort_all();
    }
}

/// Resolves when the switch is turned; the sender's end turns it too.
async fn turned(switch: &mut watch::Receiver<bool>) {
    let _ = switch.wait_for(|on| *on).await;
}

fn addresses(stream: &TcpStream, peer: std::net::SocketAddr) -> io::Result<Addresses> {
    stream.set_nodelay(true)?;
    Ok(Addresses { peer, local: stream.local_addr()? })
}
