//! The TLS files that settings name: of the ports of clients, and between nodes and `quorate ctl`.

use super::settings::Settings;
use quorate_tls::{Acceptor, ClientCertificates, Files, Mutual, NamedFile, TlsError};
use std::path::PathBuf;

/// The ends of TLS that a node has.
#[derive(Debug)]
pub(crate) struct Tls {
    /// For `amqp_tls_listen`.
    pub(crate) amqp: Option<Acceptor>,
    /// For `http_tls_listen`.
    pub(crate) http: Option<Acceptor>,
    /// Between nodes.
    pub(crate) rpc: Option<Mutual>,
}

impl Tls {
    /// Loads the files of the checked settings.
    ///
    /// # Errors
    /// A file cannot be used; the error names its setting.
    pub(crate) fn load(settings: &Settings) -> Result<Self, TlsError> {
        let clients = client_files(settings).ok();
        let accept = |asked| clients.clone().map(|files| Acceptor::load(files, asked)).transpose();
        let rpc = rpc_files(|name| settings.tls_file(name)).ok().filter(|_| settings.rpc_tls);
        let amqp = settings.amqp_tls_listen.as_ref();
        let http = settings.http_tls_listen.as_ref();
        Ok(Self {
            amqp: amqp
                .and_then(|_| accept(settings.tls_client_certificates).transpose())
                .transpose()?,
            http: http.and_then(|_| accept(ClientCertificates::None).transpose()).transpose()?,
            rpc: rpc.map(|files| Mutual::load(&files)).transpose()?,
        })
    }

    /// Loads the files again when they change, as long as the process runs.
    pub(crate) fn keep_current(&self) {
        let rpc = self.rpc.as_ref();
        let acceptors = [&self.amqp, &self.http].into_iter().flatten();
        for acceptor in acceptors.chain(rpc.map(|rpc| &rpc.acceptor)) {
            tokio::spawn(acceptor.clone().keep_current());
        }
        if let Some(rpc) = rpc {
            tokio::spawn(rpc.dialer.clone().keep_current());
        }
    }
}

/// The files for the ports of clients; the error is the setting that is missing.
pub(crate) fn client_files(settings: &Settings) -> Result<Files, &'static str> {
    let find = |setting| settings.tls_file(setting);
    Ok(Files {
        certificate: named(&["tls_certificate_file"], find)?,
        key: named(&["tls_key_file"], find)?,
        ca: named(&["tls_ca_file"], find).ok(),
    })
}

/// The files for the rpc port and those who dial it; the error is the setting that is missing.
/// `find` tells what a setting is.
pub(crate) fn rpc_files(
    find: impl Fn(&'static str) -> Option<PathBuf>,
) -> Result<Files, &'static str> {
    Ok(Files {
        certificate: named(&["rpc_tls_certificate_file", "tls_certificate_file"], &find)?,
        key: named(&["rpc_tls_key_file", "tls_key_file"], &find)?,
        ca: Some(named(&["rpc_tls_ca_file", "tls_ca_file"], &find)?),
    })
}

/// The file of the first of these settings that is set; else the name of the first.
fn named(
    settings: &[&'static str],
    find: impl Fn(&'static str) -> Option<PathBuf>,
) -> Result<NamedFile, &'static str> {
    let found =
        settings.iter().find_map(|setting| find(setting).map(|path| NamedFile { setting, path }));
    found.ok_or(settings.first().copied().unwrap_or_default())
}
