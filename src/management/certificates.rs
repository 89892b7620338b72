//! The certificates in the files that a node uses.

use crate::wire::{CertificateFacts, CertificateFile};
use quorate_tls::NamedFile;

/// Units of a period until a certificate expires, and their seconds.
pub const PERIOD_UNITS: [(&str, i64); 4] =
    [("days", 86_400), ("weeks", 604_800), ("months", 2_592_000), ("years", 31_536_000)];

/// The certificates in a file, or why it cannot be read. Reads the file.
#[must_use]
pub fn certificates(file: &NamedFile) -> CertificateFile {
    let (shown, error) = match file.shown() {
        Ok(shown) => (shown, String::new()),
        Err(error) => (Vec::new(), error.to_string()),
    };
    let facts = shown.iter().map(|certificate| {
        let (not_before_s, not_after_s) = certificate.valid_seconds().unwrap_or_default();
        let (subject, issuer) = (certificate.subject(), certificate.issuer());
        CertificateFacts { subject, issuer, not_before_s, not_after_s }
    });
    CertificateFile {
        setting: file.setting.to_owned(),
        path: file.path.display().to_string(),
        error,
        certificates: facts.collect(),
    }
}
