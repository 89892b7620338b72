//! Both ends of a TLS connection: the one that listens, and the one that dials.

use crate::{
    files::{Files, TlsError},
    reloading::Reloading,
};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{
    TlsAcceptor, TlsConnector, TlsStream,
    rustls::{
        self, ClientConfig, InvalidMessage, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::ServerName,
        server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    },
};

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked for one.
    None,
    /// They are asked for one; one that the CA has not signed is refused.
    Request,
    /// A client without one is refused too.
    Require,
}

/// The listening end. Clones share the configuration.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<Reloading<ServerConfig>>);

impl Acceptor {
    /// Loads the files.
    ///
    /// # Errors
    /// A file cannot be used; the error names its setting.
    pub fn load(files: Files, clients: ClientCertificates) -> Result<Self, TlsError> {
        let load = move |files: &Files| server_config(files, clients);
        Ok(Self(Arc::new(Reloading::load(files, load)?)))
    }

    /// Loads the files again when they change, for ever.
    pub async fn keep_current(self) {
        self.0.keep_current().await;
    }

    /// The listening end's half of the handshake.
    ///
    /// # Errors
    /// The connection fails, or either end refuses the other one ([`Refusal::of`]).
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        Ok(TlsAcceptor::from(self.0.present()).accept(stream).await?.into())
    }

    #[cfg(test)]
    pub(crate) fn look(&self) {
        self.0.look();
    }
}

/// The dialing end. Clones share the configuration.
#[derive(Clone, Debug)]
pub struct Dialer(Arc<Reloading<ClientConfig>>);

impl Dialer {
    /// Loads the files. The dialer shows its certificate when it is asked for one.
    ///
    /// # Errors
    /// A file cannot be used; the error names its setting.
    pub fn load(files: Files) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(Reloading::load(files, client_config)?)))
    }

    /// Loads the files again when they change, for ever.
    pub async fn keep_current(self) {
        self.0.keep_current().await;
    }

    /// The dialing end's half of the handshake. The other end's certificate must name `host`.
    ///
    /// # Errors
    /// The connection fails, or either end refuses the other one ([`Refusal::of`]).
    pub async fn dial<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(TlsConnector::from(self.0.present()).connect(name, stream).await?.into())
    }
}

/// Both ends of connections between peers that all show certificates of one CA.
#[derive(Clone, Debug)]
pub struct Mutual {
    /// The listening end, which requires certificates.
    pub acceptor: Acceptor,
    /// The dialing end.
    pub dialer: Dialer,
}

impl Mutual {
    /// Loads the files.
    ///
    /// # Errors
    /// A file cannot be used; the error names its setting.
    pub fn load(files: &Files) -> Result<Self, TlsError> {
        let acceptor = Acceptor::load(files.clone(), ClientCertificates::Require)?;
        Ok(Self { acceptor, dialer: Dialer::load(files.clone())? })
    }
}

/// Why a handshake failed, other than by the connection.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The first bytes of the peer are not a TLS record.
    #[error("the peer does not use TLS")]
    Plain,
    /// One end refuses the other's certificate, or they have no protocol in common.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
}

impl Refusal {
    /// The refusal in an error of a handshake, or of the first read after it: with TLS 1.3 the
    /// dialing end learns only then that its certificate was refused.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        let found = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        let plain =
            matches!(found, rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType));
        Some(if plain { Self::Plain } else { Self::Tls(found.clone()) })
    }
}

/// The versions of TLS, by RabbitMQ's names, the newest first.
#[must_use]
pub fn tls_versions() -> Vec<String> {
    ["tlsv1.3", "tlsv1.2"].map(str::to_owned).to_vec()
}

/// The cipher suites, by OpenSSL's names, the preferred ones first.
#[must_use]
pub fn cipher_suites() -> Vec<String> {
    let provider = provider();
    let suites = provider.cipher_suites.iter();
    suites.filter_map(|suite| suite.suite().as_str().map(openssl_name)).collect()
}

/// OpenSSL's name of a suite such as `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`.
fn openssl_name(name: &str) -> String {
    if let Some(rest) = name.strip_prefix("TLS13_") {
        return format!("TLS_{rest}");
    }
    let name = name.strip_prefix("TLS_").unwrap_or(name).replace("_WITH_", "_");
    let name = name.replace("AES_", "AES").replace("POLY1305_SHA256", "POLY1305");
    name.replace('_', "-")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn server_config(files: &Files, clients: ClientCertificates) -> Result<ServerConfig, TlsError> {
    let verifier = match clients {
        ClientCertificates::None => WebPkiClientVerifier::no_client_auth(),
        ClientCertificates::Request => verifier(files, true)?,
        ClientCertificates::Require => verifier(files, false)?,
    };
    let (certificates, key) = files.own()?;
    ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder.with_client_cert_verifier(verifier).with_single_cert(certificates, key)
        })
        .map_err(|error| files.key.error(error))
}

fn verifier(files: &Files, or_none: bool) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let file = files.ca.as_ref().ok_or(TlsError::NoCa)?;
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(files.roots()?), provider());
    let builder = if or_none { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| file.error(error))
}

fn client_config(files: &Files) -> Result<ClientConfig, TlsError> {
    let roots = files.roots()?;
    let (certificates, key) = files.own()?;
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder.with_root_certificates(roots).with_client_auth_cert(certificates, key)
        })
        .map_err(|error| files.key.error(error))
}
