//! TLS: clients, nodes and `quorate ctl`; logins by certificate; certificates that are replaced.

#![expect(clippy::expect_used, reason = "tests")]

use crate::members::says;
use lapin::{Connection, ConnectionProperties};
use quorate_cluster_tests::harness::amqp::{connect, declare_quorum, get, publish_confirmed};
use quorate_cluster_tests::harness::amqp::{open, open_confirming};
use quorate_cluster_tests::harness::ctl::text;
use quorate_cluster_tests::harness::tls::{Certificates, TlsClient, generate};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options, Port};
use tempfile::TempDir;

/// Files of TLS, and the flags that name them.
fn flags(prefix: &str, certificates: &Certificates) -> Vec<(String, String)> {
    [("certificate-file", "node.pem"), ("key-file", "node-key.pem"), ("ca-file", "ca.pem")]
        .map(|(flag, name)| (format!("--{prefix}-{flag}"), certificates.path(name)))
        .to_vec()
}

/// A cluster that is not started, whose nodes and commands use TLS with certificates in `tls`.
async fn prepare(nodes: u64, options: Options) -> (Cluster, Certificates, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let binary = quorate_cluster_tests::harness::binary();
    let certificates = generate(&binary, folder.path().join("tls"), &[]);
    let named = flags("tls", &certificates).into_iter();
    let options = named.fold(options, |options, (flag, value)| options.with(&flag, &value));
    (Cluster::prepare(nodes, options).await, certificates, folder)
}

fn as_args(flags: &[(String, String)]) -> Vec<&str> {
    flags.iter().flat_map(|(flag, value)| [flag.as_str(), value.as_str()]).collect()
}

/// What `quorate ctl` needs to connect over TLS.
fn ctl_flags(certificates: &Certificates) -> Vec<(String, String)> {
    let mut all = vec![("--rpc-tls".to_owned(), "true".to_owned())];
    all.extend(flags("rpc-tls", certificates));
    all
}

fn uri(address: &str, mechanism: &str) -> String {
    format!("amqp://guest:guest@{address}/%2f?auth_mechanism={mechanism}")
}

async fn try_connect(address: &str, mechanism: &str) -> Result<Connection, String> {
    let properties = ConnectionProperties::default();
    let connected = Connection::connect(&uri(address, mechanism), properties).await;
    connected.map_err(|error| error.to_string())
}

/// Probes, the API, the page, and a login to it, whose cookie browsers send over TLS only.
async fn serves_api_and_page(client: &TlsClient, https: &str) {
    let login = "user=guest&password=guest";
    let (length, form) = (login.len(), "application/x-www-form-urlencoded");
    let basic = "authorization: Basic Z3Vlc3Q6Z3Vlc3Q=";
    let questions = [
        ("GET /health/live HTTP/1.0\r\n\r\n".to_owned(), ""),
        (format!("GET /api/whoami HTTP/1.0\r\n{basic}\r\n\r\n"), "\"name\":\"guest\""),
        ("GET / HTTP/1.0\r\n\r\n".to_owned(), "<!doctype html>"),
        (
            format!(
                "POST /login HTTP/1.0\r\ncontent-type: {form}\r\ncontent-length: {length}\r\n\r\n{login}"
            ),
            "SameSite=Strict; Secure",
        ),
    ];
    for (question, wanted) in questions {
        let answer = client.ask(https, question.as_bytes()).await.expect("HTTPS");
        let is_good = answer.starts_with("HTTP/1.0 200") && answer.contains(wanted);
        assert!(is_good, "{question}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_nodes_and_commands_over_tls() {
    let (cluster, certificates, _folder) =
        prepare(3, Options::default().with("--rpc-tls", "true")).await;
    let (amqps, https) = (Port::reserve().address(), Port::reserve().address());
    let first = [("--amqp-tls-listen", amqps.as_str()), ("--http-tls-listen", https.as_str())];
    cluster.node(1).spawn_with(&first);
    cluster.node(2).spawn();
    cluster.node(3).spawn();
    cluster.ready().await;

    let client = TlsClient::new(&certificates, None);
    let tunnel = client.tunnel(&amqps).await;
    let (_publishing, publisher) = open_confirming(&uri(&tunnel.address, "plain")).await;
    declare_quorum(&publisher, "over-tls").await;
    let body = vec![7; 1 << 20];
    publish_confirmed(&publisher, "over-tls", &body).await;
    let (_getting, getter) = open(&cluster.amqp_uri(2)).await;
    assert_eq!(get(&getter, "over-tls").await, Some(body.clone()));
    publish_confirmed(&publisher, "over-tls", &body).await;
    assert_eq!(get(&publisher, "over-tls").await, Some(body), "large ones come back too");

    serves_api_and_page(&client, &https).await;

    let tls = ctl_flags(&certificates);
    let mut line = vec!["list_connections", "ssl", "ssl_protocol", "-q", "--formatter", "json"];
    line.extend(as_args(&tls));
    let rows = cluster.ctl(2, &line).await.rows().expect("rows");
    let mut shown: Vec<_> =
        rows.iter().map(|row| (text(row, "ssl"), text(row, "ssl_protocol"))).collect();
    shown.sort();
    let pair = |ssl: &str, protocol: &str| (ssl.to_owned(), protocol.to_owned());
    assert_eq!(shown, [pair("false", ""), pair("true", "tlsv1.3")]);

    let refused = cluster.ctl(1, &["status"]).await;
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.stderr.contains("the peer uses TLS, and this end does not"), "{refused:?}");
    let foreign = generate(cluster.binary(), cluster.folder().join("foreign"), &[]);
    let mut wrong = ctl_flags(&foreign);
    let refused = cluster.ctl(1, &[&["status"], as_args(&wrong).as_slice()].concat()).await;
    assert!(refused.stderr.contains("UnknownIssuer"), "{refused:?}");
    // One that trusts the nodes, and that they do not trust.
    wrong.push(("--rpc-tls-ca-file".to_owned(), certificates.path("ca.pem")));
    let refused = cluster.ctl(1, &[&["status"], as_args(&wrong).as_slice()].concat()).await;
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.stderr.contains("TLS: received fatal alert"), "{refused:?}");
}

/// CONN-06: EXTERNAL stands for the user of the client's certificate.
#[tokio::test(flavor = "multi_thread")]
async fn conn_06_external_logs_in_the_user_of_a_certificate() {
    let options = Options::default().with("--tls-client-certificates", "request");
    let (cluster, certificates, _folder) = prepare(1, options).await;
    let amqps = Port::reserve().address();
    cluster.node(1).spawn_with(&[("--amqp-tls-listen", &amqps)]);
    cluster.ready().await;
    let foreign = generate(cluster.binary(), cluster.folder().join("foreign"), &[]);
    let tunnel = async |own| TlsClient::new(&certificates, own).tunnel(&amqps).await;

    let guest = tunnel(Some((&certificates, "client"))).await;
    let logged_in = try_connect(&guest.address, "external").await.expect("guest's certificate");
    let rows =
        cluster.rows(1, &["list_connections", "user", "auth_mechanism", "peer_cert_subject"]);
    let rows = rows.await.expect("rows");
    let columns = ["user", "auth_mechanism", "peer_cert_subject"];
    let row = columns.map(|column| rows.first().map(|row| text(row, column)).unwrap_or_default());
    assert_eq!(row, ["guest", "EXTERNAL", "CN=guest"]);
    drop(logged_in);

    let refused = |attempt: Result<Connection, String>| attempt.expect_err("a refusal");
    // The certificate of a node names no user.
    let unknown = tunnel(Some((&certificates, "node"))).await;
    let why = refused(try_connect(&unknown.address, "external").await);
    assert!(why.contains("using authentication mechanism EXTERNAL"), "{why}");
    // Without a certificate EXTERNAL is not offered; a password is enough.
    let none = tunnel(None).await;
    refused(try_connect(&none.address, "external").await);
    connect(&uri(&none.address, "plain")).await;
    let start = b"AMQP\x00\x00\x09\x01";
    for (own, offered) in [(None, false), (Some((&certificates, "client")), true)] {
        let client = TlsClient::new(&certificates, own);
        let answer = offer(&client, &amqps, start).await;
        assert_eq!(answer.contains("EXTERNAL"), offered, "{answer}");
    }
    // A certificate of another authority is refused before AMQP begins.
    let client = TlsClient::new(&certificates, Some((&foreign, "client")));
    let why = client.ask(&amqps, start).await.expect_err("a refusal").to_string();
    assert!(why.contains("fatal alert"), "{why}");
}

/// The first frame that answers the protocol header.
async fn offer(client: &TlsClient, address: &str, header: &[u8]) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = client.connect(address).await.expect("TLS");
    stream.write_all(header).await.expect("a header sent");
    stream.flush().await.expect("a header sent");
    let mut frame = vec![0; 4096];
    let read = stream.read(&mut frame).await.expect("connection.start");
    String::from_utf8_lossy(frame.get(..read).unwrap_or_default()).into_owned()
}

fn copy_all(from: &Certificates, to: &Certificates) {
    for name in ["ca.pem", "node.pem", "node-key.pem"] {
        std::fs::copy(from.path(name), to.path(name)).expect("a copy");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_certificates_are_shown_without_a_restart() {
    let (cluster, certificates, _folder) = prepare(1, Options::default()).await;
    let amqps = Port::reserve().address();
    cluster.node(1).spawn_with(&[("--amqp-tls-listen", &amqps)]);
    cluster.ready().await;
    let client = TlsClient::new(&certificates, None);
    let before = client.shown(&amqps).await.expect("the first certificate");
    let tunnel = client.tunnel(&amqps).await;
    let (_connection, channel) = open_confirming(&uri(&tunnel.address, "plain")).await;
    declare_quorum(&channel, "kept").await;

    let others = generate(cluster.binary(), cluster.folder().join("others"), &[]);
    copy_all(&others, &certificates);
    let newer = TlsClient::new(&others, None);
    let after = eventually("the new certificate is shown", || async {
        newer.shown(&amqps).await.map_err(|error| error.to_string())
    })
    .await;
    assert_ne!(before, after);
    publish_confirmed(&channel, "kept", b"on the old connection").await;
    assert_eq!(get(&channel, "kept").await.as_deref(), Some(&b"on the old connection"[..]));

    std::fs::write(certificates.path("node-key.pem"), "not a key").expect("a file");
    eventually("the node says what is wrong", || async {
        let log = cluster.node(1).log();
        hold(log.contains("setting tls_key_file:") && log.contains("keeping it"), || log)
    })
    .await;
    assert_eq!(newer.shown(&amqps).await.expect("still that one"), after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_right_certificate_is_refused() {
    let (cluster, certificates, _folder) =
        prepare(3, Options::default().with("--rpc-tls", "true")).await;
    let foreign = generate(cluster.binary(), cluster.folder().join("foreign"), &[]);
    let named = generate(cluster.binary(), cluster.folder().join("named"), &["elsewhere"]);
    let authorities = [&certificates, &named]
        .map(|of| std::fs::read_to_string(of.path("ca.pem")).expect("an authority"));
    std::fs::write(certificates.path("ca.pem"), authorities.concat()).expect("both");
    cluster.node(1).spawn();
    cluster.node(2).spawn();

    let with = |certificates: &Certificates| flags("rpc-tls", certificates);
    let spawn = |flags: &[(String, String)]| {
        let flags: Vec<_> = flags.iter().map(|(flag, value)| (&**flag, &**value)).collect();
        cluster.node(3).spawn_with(&flags);
    };
    spawn(&with(&foreign));
    says(cluster.node(1), "refused a connection to the rpc port: TLS: ").await;
    says(cluster.node(3), "may know of a cluster node=1 why=\"TLS: invalid peer certificate").await;
    cluster.node(3).kill9();

    // Node 3 without TLS.
    spawn(&[("--rpc-tls".to_owned(), "false".to_owned())]);
    says(cluster.node(1), "the peer does not use TLS, and this end does (setting rpc_tls)").await;
    says(cluster.node(3), "the peer uses TLS, and this end does not (setting rpc_tls)").await;
    cluster.node(3).kill9();

    cluster.node(3).spawn();
    cluster.ready().await;
    cluster.node(3).kill9();

    // A certificate of a trusted authority, for another host.
    let mut other = with(&named);
    other.push(("--rpc-tls-ca-file".to_owned(), certificates.path("ca.pem")));
    spawn(&other);
    says(cluster.node(1), "the certificate of the peer does not name the host of node 3").await;
    says(cluster.node(1), "not valid for name").await;
    cluster.node(3).kill9();

    cluster.node(3).spawn();
    cluster.ready().await;
}
