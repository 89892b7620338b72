//! TLS from the client's side: handshakes, and tunnels through which clients without TLS reach a
//! port that has it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsConnector, rustls::crypto::ring};

/// Files in a folder that `quorate ctl generate_certificates` has filled.
#[derive(Clone, Debug)]
pub struct Certificates(pub PathBuf);

impl Certificates {
    /// The path of a file.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

/// A client of TLS ports.
#[derive(Clone, Debug)]
pub struct TlsClient(Arc<ClientConfig>);

impl TlsClient {
    /// Trusts the authority of `trusted`. Shows the certificate NAME.pem of `own`, if there is one.
    ///
    /// # Panics
    /// When a file is not as it should be.
    #[must_use]
    pub fn new(trusted: &Certificates, own: Option<(&Certificates, &str)>) -> Self {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(trusted.path("ca.pem")).expect("ca.pem");
        roots.add(authority).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((own, name)) => {
                let file = |end: &str| own.path(&format!("{name}{end}.pem"));
                let certificate = CertificateDer::from_pem_file(file("")).expect("a certificate");
                let key = PrivateKeyDer::from_pem_file(file("-key")).expect("a key");
                builder.with_client_auth_cert(vec![certificate], key).expect("a pair")
            }
        };
        Self(Arc::new(config))
    }

    /// Connects, and does the handshake.
    ///
    /// # Errors
    /// Nobody listens, or either end refuses the other one. With TLS 1.3 a refusal of the client's
    /// certificate shows at the first read only.
    pub async fn connect(&self, address: &str) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await
    }

    /// The certificate that a port presents in its handshake, in DER form.
    ///
    /// # Errors
    /// As [`TlsClient::connect`].
    pub async fn shown(&self, address: &str) -> io::Result<Vec<u8>> {
        let stream = self.connect(address).await?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Ok(chain.first().map(|certificate| certificate.to_vec()).unwrap_or_default())
    }

    /// Sends bytes after the handshake, and reads to the end.
    ///
    /// # Errors
    /// As [`TlsClient::connect`], and what the connection says.
    pub async fn ask(&self, address: &str, question: &[u8]) -> io::Result<String> {
        let mut stream = self.connect(address).await?;
        stream.write_all(question).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer).await {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            Ok(_) | Err(_) => Ok(String::from_utf8_lossy(&answer).into_owned()),
        }
    }

    /// A tunnel to a TLS port.
    ///
    /// # Panics
    /// When there is no port for it.
    pub async fn tunnel(&self, address: &str) -> Tunnel {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let here = listener.local_addr().expect("its address").to_string();
        let (client, there) = (self.clone(), address.to_owned());
        let carrying = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (client, there) = (client.clone(), there.clone());
                tokio::spawn(async move {
                    if let Ok(mut far) = client.connect(&there).await {
                        // Whatever ends it, both ends see.
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        Tunnel { address: here, carrying }
    }
}

/// A port of this machine whose connections lead to a TLS port.
#[derive(Debug)]
pub struct Tunnel {
    /// `HOST:PORT`.
    pub address: String,
    carrying: JoinHandle<()>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

/// Makes certificates in a folder with the binary under test.
///
/// # Panics
/// When the command fails.
#[must_use]
pub fn generate(binary: &Path, folder: PathBuf, hosts: &[&str]) -> Certificates {
    let mut command = std::process::Command::new(binary);
    command.args(["ctl", "generate_certificates"]).arg(&folder);
    hosts.iter().for_each(|host| {
        command.args(["--host", host]);
    });
    let output = command.output().expect("the binary");
    assert!(output.status.success(), "{output:?}");
    Certificates(folder)
}
