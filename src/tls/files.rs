//! The PEM files, and what is wrong with them.

use crate::certificate::Certificate;
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// A file, and the setting that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// The setting, for errors.
    pub setting: &'static str,
    /// The path of the file.
    pub path: PathBuf,
}

/// The files of one end of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and those between it and its CA.
    pub certificate: NamedFile,
    /// The private key of the certificate.
    pub key: NamedFile,
    /// Certificates of the CAs that sign the certificates of peers.
    pub ca: Option<NamedFile>,
}

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or does not contain what it should.
    #[error("setting {setting}: {path}: {why}")]
    File {
        /// The setting that names the file.
        setting: &'static str,
        /// The path of the file.
        path: String,
        /// Why it cannot be used.
        why: String,
    },
    /// Certificates of peers are to be verified, and no CA is named.
    #[error("no file of a certificate authority is set, so that no peer can be verified")]
    NoCa,
}

/// What tells two versions of a file apart: modification time (s, ns), inode and size.
pub(crate) type Mark = (i64, i64, u64, u64);

impl NamedFile {
    /// An error about this file.
    pub(crate) fn error(&self, why: impl ToString) -> TlsError {
        let path = self.path.display().to_string();
        TlsError::File { setting: self.setting, path, why: why.to_string() }
    }

    /// The certificates in the file, in their order, for showing them.
    ///
    /// # Errors
    /// It cannot be read, or has none.
    pub fn shown(&self) -> Result<Vec<Certificate>, TlsError> {
        Ok(self.certificates()?.iter().map(Certificate::new).collect())
    }

    fn read(&self) -> Result<Vec<u8>, TlsError> {
        fs::read(&self.path).map_err(|error| self.error(error))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let pem = self.read()?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let found = found.map_err(|error| self.error(error))?;
        if found.is_empty() {
            return Err(self.error("contains no certificate in PEM format"));
        }
        Ok(found)
    }
}

impl Files {
    /// The certificate with its chain, and its key.
    pub(crate) fn own(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let certificates = self.certificate.certificates()?;
        let pem = self.key.read()?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
            self.key.error(format!("contains no private key in PEM format: {error}"))
        })?;
        Ok((certificates, key))
    }

    /// The certificate authorities.
    pub(crate) fn roots(&self) -> Result<RootCertStore, TlsError> {
        let file = self.ca.as_ref().ok_or(TlsError::NoCa)?;
        let mut roots = RootCertStore::empty();
        for certificate in file.certificates()? {
            roots.add(certificate).map_err(|error| file.error(error))?;
        }
        Ok(roots)
    }

    /// Distinguishes versions of the files; a file that cannot be read has no mark.
    pub(crate) fn marks(&self) -> Vec<Option<Mark>> {
        let files = [Some(&self.certificate), Some(&self.key), self.ca.as_ref()];
        files.into_iter().flatten().map(|file| mark(&file.path).ok()).collect()
    }
}

fn mark(path: &Path) -> io::Result<Mark> {
    let data = fs::metadata(path)?;
    Ok((data.mtime(), data.mtime_nsec(), data.ino(), data.size()))
}
