//! TLS of all ports: certificates from files, which are loaded again when they change; both ends of
//! a connection; and who the other end is, by its certificate.

mod files;
mod reloading;

mod ends;
mod stream;

mod certificate;

pub use certificate::{Certificate, LoginFrom};
pub use ends::{
    Acceptor, ClientCertificates, Dialer, Mutual, Refusal, cipher_suites, tls_versions,
};
pub use files::{Files, NamedFile, TlsError};
pub use stream::{Session, Stream};
pub use tokio_rustls::TlsStream;

#[cfg(test)]
mod tests;
