//! Accepts clients, and disconnects all of them at a stop.

use crate::{
    client::{Arrival, serve_client},
    handshakes::Handshakes,
    ports::{Listeners, PortSwitch, Ports},
    tls::serve_tls_client,
};
use quorate_client::Broker;
use quorate_types::Source;
use socket2::{SockRef, TcpKeepalive};
use std::{io, net::SocketAddr, time::Duration};
use tokio::{
    net::TcpStream,
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

/// How long a stop waits for clients to agree to their close (CONN-29).
const STOP_MAX: Duration = Duration::from_secs(3);

/// How long to wait after an accept that failed for lack of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The system notices that a peer without heartbeats has vanished after a minute of silence and
/// this number of probes without an answer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// Serves AMQP 0-9-1 clients on all `listeners`, at most `connections_max` at once, handshakes included:
/// at the bound, clients wait in the listen queue until one ends. While the node is drained, and once
/// `full` is true, no client is accepted, and the system refuses connections. Once `shutdown` is true every
/// connection is closed with 320 (CONN-29). Returns when all have ended, at the latest 3 s after that.
pub async fn serve<B: Broker>(
    listeners: Listeners,
    broker: B,
    connections_max: usize,
    mut switch: PortSwitch,
    mut full: watch::Receiver<bool>,
    mut shutdown: watch::Receiver<bool>,
) {
    let stop = shutdown.clone();
    let settings = broker.front_settings();
    let handshakes = Handshakes::new(settings.handshake_max);
    let time_max = Duration::from_millis(settings.handshake_timeout_ms);
    let mut ports = Ports::new(listeners, settings.amqp_receive_buffer);
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            // Ports that a stop has closed are not opened again.
            biased;
            () = turned(&mut full) => break,
            () = turned(&mut shutdown) => break,
            Some(_) = clients.join_next() => {}
            close = switch.turned(ports.are_closed()) => {
                if close { ports.close().await } else { ports.open().await }
                switch.closed.send_replace(ports.are_closed());
            }
            accepted = ports.accept(), if clients.len() < connections_max => match accepted {
                Ok((stream, peer, tls)) => match arrival(&stream, peer, time_max) {
                    Ok(arrival) => {
                        let (broker, stop, place) =
                            (broker.clone(), stop.clone(), handshakes.begin(Source::of(peer.ip())));
                        if let Some(tls) = tls {
                            let tls = tls.ends();
                            clients.spawn(serve_tls_client(stream, tls, arrival, broker, place, stop));
                        } else {
                            clients.spawn(serve_client(stream, arrival, broker, place, stop));
                        }
                    }
                    Err(error) => tracing::debug!(%peer, %error, "a client disconnected at once"),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client");
                    sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(ports);
    switch.closed.send_replace(true);
    end_all(clients, shutdown).await;
}

/// Waits until the node stops, and then until all clients have ended or have had their time.
async fn end_all(mut clients: JoinSet<()>, mut shutdown: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = turned(&mut shutdown) => break,
            Some(_) = clients.join_next() => {}
        }
    }
    if !clients.is_empty() {
        let (clients, seconds) = (clients.len(), STOP_MAX.as_secs());
        tracing::info!(clients, seconds, "closing the connections of clients, waiting for them");
    }
    let all = async { while clients.join_next().await.is_some() {} };
    if timeout(STOP_MAX, all).await.is_err() {
        tracing::warn!(
            clients = clients.len(),
            "clients did not confirm the close of their connections in time"
        );
        clients.abort_all();
    }
}

/// Resolves when the switch is true; the loss of the sender counts as true.
async fn turned(switch: &mut watch::Receiver<bool>) {
    let _ = switch.wait_for(|on| *on).await;
}

fn arrival(stream: &TcpStream, peer: SocketAddr, time_max: Duration) -> io::Result<Arrival> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
    let until = Instant::now() + time_max;
    Ok(Arrival { peer, local: stream.local_addr()?, until, tls: None })
}
