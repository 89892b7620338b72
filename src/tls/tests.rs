//! Handshakes between both ends, with certificates of a test's own authorities.

#![expect(clippy::unwrap_used, reason = "tests")]

use crate::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use std::{fs, io, path::Path};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::TlsStream;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate of the authority with these names, its key, and the authority's certificate.
fn write(folder: &Path, by: &Authority, common_name: &str, hosts: &[&str]) {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CountryName, "DE");
    params.distinguished_name.push(DnType::OrganizationName, "Acme, Inc.");
    params.distinguished_name.push(DnType::CommonName, common_name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    fs::write(folder.join("own.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("own-key.pem"), key.serialize_pem()).unwrap();
    fs::write(folder.join("ca.pem"), by.pem()).unwrap();
}

fn files(folder: &Path) -> Files {
    let named = |setting, name| NamedFile { setting, path: folder.join(name) };
    Files {
        certificate: named("certificate_file", "own.pem"),
        key: named("key_file", "own-key.pem"),
        ca: Some(named("ca_file", "ca.pem")),
    }
}

/// A folder with files as [`write`] makes them.
fn folder(by: &Authority, common_name: &str, hosts: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), by, common_name, hosts);
    folder
}

type Ends = (io::Result<TlsStream<DuplexStream>>, io::Result<TlsStream<DuplexStream>>);

/// Both results of a handshake: of the dialing and of the listening end. A byte follows in each
/// direction, since with TLS 1.3 the dialing end learns of a refusal by its first read.
async fn meet(dialer: &Dialer, host: &str, acceptor: &Acceptor) -> Ends {
    let (near, far) = duplex(1 << 16);
    let dialing = async {
        let mut stream = dialer.dial(host, near).await?;
        stream.write_all(b"?").await?;
        stream.flush().await?;
        stream.read_u8().await?;
        Ok(stream)
    };
    let accepting = async {
        let mut stream = acceptor.accept(far).await?;
        stream.read_u8().await?;
        stream.write_all(b"!").await?;
        stream.flush().await?;
        Ok(stream)
    };
    tokio::join!(dialing, accepting)
}

fn refusal(ended: &io::Result<TlsStream<DuplexStream>>) -> String {
    Refusal::of(ended.as_ref().unwrap_err()).unwrap().to_string()
}

#[tokio::test]
async fn ends_of_one_authority_know_each_other() {
    let by = authority("ours");
    let server = folder(&by, "one", &["localhost", "127.0.0.1"]);
    let client = folder(&by, "robot", &["robot.example"]);
    let mutual = Mutual::load(&files(server.path())).unwrap();
    let dialer = Dialer::load(files(client.path())).unwrap();
    for host in ["localhost", "127.0.0.1"] {
        let (dialed, accepted) = meet(&dialer, host, &mutual.acceptor).await;
        assert!(dialed.is_ok());
        let session = Session::of(&accepted.unwrap());
        assert_eq!((session.protocol, session.key_exchange.as_str()), ("tlsv1.3", "any"));
        let certificate = session.certificate.unwrap();
        assert!(certificate.names("robot.example") && !certificate.names("robot"));
        let user = |from| certificate.user(from).unwrap();
        assert_eq!(user(LoginFrom::CommonName), "robot");
        assert_eq!(user(LoginFrom::SubjectAlternativeName), "robot.example");
        assert_eq!(user(LoginFrom::DistinguishedName), "CN=robot,O=Acme\\, Inc.,C=DE");
        assert_eq!(certificate.validity(), "1975-01-01T00:00:00Z - 4096-01-01T00:00:00Z");
    }
    let (dialed, _) = meet(&dialer, "127.0.0.2", &mutual.acceptor).await;
    assert!(refusal(&dialed).contains("not valid for name"), "{}", refusal(&dialed));
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_by_both_ends() {
    let by = authority("ours");
    let server = folder(&by, "one", &["localhost"]);
    let foreign = folder(&authority("theirs"), "two", &["localhost"]);
    let acceptor = Acceptor::load(files(server.path()), ClientCertificates::Request).unwrap();
    let dialer = Dialer::load(files(foreign.path())).unwrap();
    let (dialed, _) = meet(&dialer, "localhost", &acceptor).await;
    assert!(refusal(&dialed).contains("UnknownIssuer"), "{}", refusal(&dialed));
    // One that knows the server's authority, and has a certificate of another.
    fs::copy(server.path().join("ca.pem"), foreign.path().join("ca.pem")).unwrap();
    let dialer = Dialer::load(files(foreign.path())).unwrap();
    let (dialed, accepted) = meet(&dialer, "localhost", &acceptor).await;
    assert!(dialed.is_err());
    assert!(refusal(&accepted).contains("UnknownIssuer"), "{}", refusal(&accepted));
}

#[tokio::test]
async fn a_peer_without_tls_is_told_from_one_with_a_wrong_certificate() {
    let server = folder(&authority("ours"), "one", &["localhost"]);
    let acceptor = Acceptor::load(files(server.path()), ClientCertificates::None).unwrap();
    let (mut near, far) = duplex(1 << 16);
    near.write_all(b"QUORATE\x01").await.unwrap();
    let accepted = acceptor.accept(far).await;
    assert_eq!(refusal(&accepted), "the peer does not use TLS");
}

#[tokio::test]
async fn changed_files_are_for_new_handshakes() {
    let by = authority("ours");
    let server = folder(&by, "one", &["localhost"]);
    let client = folder(&by, "robot", &["robot"]);
    let acceptor = Acceptor::load(files(server.path()), ClientCertificates::None).unwrap();
    let dialer = Dialer::load(files(client.path())).unwrap();
    let (old, old_far) = meet(&dialer, "localhost", &acceptor).await;
    let (mut old, mut old_far) = (old.unwrap(), old_far.unwrap());
    write(server.path(), &by, "two", &["two.example"]);
    acceptor.look();
    let (dialed, _) = meet(&dialer, "localhost", &acceptor).await;
    assert!(dialed.is_err(), "the old certificate is shown no more");
    assert!(meet(&dialer, "two.example", &acceptor).await.0.is_ok());
    // What is broken is not taken.
    fs::write(server.path().join("own-key.pem"), "not a key").unwrap();
    acceptor.look();
    assert!(meet(&dialer, "two.example", &acceptor).await.0.is_ok());
    old.write_all(b"still open").await.unwrap();
    old.flush().await.unwrap();
    let mut read = [0; 10];
    old_far.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"still open");
}

#[test]
fn an_error_names_the_setting_and_the_file() {
    let by = authority("ours");
    let server = folder(&by, "one", &["localhost"]);
    let load = || {
        let loaded = Acceptor::load(files(server.path()), ClientCertificates::Require);
        let path = server.path().display().to_string();
        loaded.unwrap_err().to_string().replace(&path, "DIR")
    };
    let key = fs::read(server.path().join("own-key.pem")).unwrap();
    write(server.path(), &by, "two", &["localhost"]);
    fs::write(server.path().join("own-key.pem"), key).unwrap();
    assert!(load().starts_with("setting key_file: DIR/own-key.pem: "), "{}", load());
    fs::write(server.path().join("ca.pem"), "").unwrap();
    assert_eq!(load(), "setting ca_file: DIR/ca.pem: contains no certificate in PEM format");
    fs::remove_file(server.path().join("ca.pem")).unwrap();
    assert_eq!(load(), "setting ca_file: DIR/ca.pem: No such file or directory (os error 2)");
}

#[test]
fn addresses_are_names_too() {
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(SanType::IpAddress("::1".parse().unwrap()));
    let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let certificate = Certificate::new(certificate.der());
    assert!(certificate.names("::1") && !certificate.names("::2"));
    assert_eq!(certificate.user(LoginFrom::SubjectAlternativeName), None);
}

#[test]
fn cipher_suites_have_openssls_names() {
    let suites = cipher_suites();
    for name in [
        "TLS_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ] {
        assert!(suites.iter().any(|suite| suite == name), "{name}: {suites:?}");
    }
}

#[test]
fn certificates_of_a_file_are_shown_with_the_time_for_which_they_are_valid() {
    let server = folder(&authority("ours"), "one", &["localhost"]);
    let shown = files(server.path()).certificate.shown().unwrap();
    let (first, last) = shown.first().unwrap().valid_seconds().unwrap();
    assert!(first < last, "{first} {last}");
    assert!(shown.first().unwrap().subject().starts_with("CN=one"));
}
