//! `generate_certificates`: a CA and certificates of a node and a client, for trying TLS.

use super::Console;
use super::command::{Manual, Verb, plain};
use super::exit::{Exit, Failure};
use super::options::Invocation;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The user that the client certificate names.
const USER: &str = "guest";
/// Years for which the certificates are valid.
const YEARS: i32 = 10;
const SECONDS_OF_YEAR: u64 = 31_556_952;

/// The manual of the verb.
pub(crate) const MANUAL: Manual = plain(
    Verb::GenerateCertificates,
    "generate_certificates",
    "Configuration and Environment",
    "<directory> [--host <name or address> ...]",
    "Makes a certificate authority, a node certificate and a client certificate, for trying TLS",
    (1, 1),
    &["host"],
);

/// A file to be written: its name, its content, and whether only its owner may read it.
type Made = (&'static str, String, bool);

/// Why nothing, or not everything, was made.
#[derive(Debug, thiserror::Error)]
enum CertificateError {
    #[error("{0} is there already and is not overwritten")]
    Exists(String),
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    #[error("cannot make certificates: {0}")]
    Making(#[from] rcgen::Error),
}

/// Makes the files, and prints them and the settings to use.
pub(super) fn generate(invocation: &Invocation, console: &mut Console<'_>) -> Result<(), Failure> {
    let directory = PathBuf::from(invocation.arguments.first().map_or(".", String::as_str));
    let given = invocation.options.values.iter().filter(|(option, _)| *option == "host");
    let mut hosts: Vec<String> = given.map(|(_, host)| host.clone()).collect();
    if hosts.is_empty() {
        hosts = own_hosts();
    }
    let written = make(&hosts)
        .map_err(CertificateError::from)
        .and_then(|files| write(&directory, &files).map(|()| files));
    let files = written.map_err(|error| Failure::new(Exit::Data, format!("Error:\n{error}\n")))?;
    let at = |name: &str| directory.join(name).display().to_string();
    for (name, ..) in &files {
        console.say(&format!("{}\n", at(name)));
    }
    let (certificate, key, ca) = (at("node.pem"), at("node-key.pem"), at("ca.pem"));
    console.say(&format!(
        "
The node certificate names {}. Settings of a node:

amqp_tls_listen = \"0.0.0.0:5671\"
tls_certificate_file = \"{certificate}\"
tls_key_file = \"{key}\"
tls_ca_file = \"{ca}\"
tls_client_certificates = \"request\"
rpc_tls = true
",
        hosts.join(", ")
    ));
    Ok(())
}

/// Names by which this machine is reached, at least from itself.
fn own_hosts() -> Vec<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let name = name.trim();
    if !name.is_empty() && name != "localhost" {
        hosts.push(name.to_owned());
    }
    hosts
}

fn make(hosts: &[String]) -> Result<Vec<Made>, rcgen::Error> {
    // Authorities of the same name are taken for each other, and the error is then misleading.
    let mut authority = named(&format!("Quorate test CA {:08x}", rand::random::<u32>()), &[])?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let signed = |name: &str, hosts: &[String], uses: &[ExtendedKeyUsagePurpose]| {
        let mut params = named(name, hosts)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = uses.to_vec();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &authority)?;
        Ok::<_, rcgen::Error>((certificate.pem(), key.serialize_pem()))
    };
    let (client, server) =
        (ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth);
    let name = hosts.first().map_or("localhost", String::as_str);
    // Nodes dial each other: a node's certificate is that of a client too.
    let (node, node_key) = signed(name, hosts, &[server, client.clone()])?;
    let (user, user_key) = signed(USER, &[], &[client])?;
    Ok(vec![
        ("ca.pem", authority.pem(), false),
        ("ca-key.pem", authority.key().serialize_pem(), true),
        ("node.pem", node, false),
        ("node-key.pem", node_key, true),
        ("client.pem", user, false),
        ("client-key.pem", user_key, true),
    ])
}

/// The contents of a certificate with this common name, valid from the beginning of last year.
fn named(name: &str, hosts: &[String]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(hosts.to_vec())?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let year = i32::try_from(1970 + seconds / SECONDS_OF_YEAR).unwrap_or(i32::MAX);
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + YEARS, 1, 1);
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Writes all files, or none if one of them exists.
fn write(directory: &Path, files: &[Made]) -> Result<(), CertificateError> {
    let failed = |path: &Path, source| {
        let path = path.display().to_string();
        CertificateError::File { path, source }
    };
    let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
    made.map_err(|source| failed(directory, source))?;
    if let Some((name, ..)) = files.iter().find(|(name, ..)| directory.join(name).exists()) {
        return Err(CertificateError::Exists(directory.join(name).display().to_string()));
    }
    for (name, content, is_private) in files {
        let path = directory.join(name);
        let mode = if *is_private { 0o600 } else { 0o644 };
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let written = file.and_then(|mut file| file.write_all(content.as_bytes()));
        written.map_err(|source| failed(&path, source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::cli::ctl::run;
    use std::os::unix::fs::PermissionsExt;

    fn generate(directory: &Path) -> (u8, String) {
        let line = ["generate_certificates", directory.to_str().unwrap()].map(str::to_owned);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run(&line, "x", &mut Console { out: &mut out, err: &mut err });
        (code, String::from_utf8([out, err].concat()).unwrap())
    }

    #[test]
    fn keys_are_private_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("tls");
        assert_eq!(generate(&directory).0, 0);
        for key in ["ca-key.pem", "node-key.pem", "client-key.pem"] {
            let mode = std::fs::metadata(directory.join(key)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{key}");
        }
        std::fs::remove_file(directory.join("ca.pem")).unwrap();
        let (code, said) = generate(&directory);
        assert_eq!(code, Exit::Data.code());
        let expected = "ca-key.pem is there already and is not overwritten\n";
        assert!(said.ends_with(expected), "{said}");
        assert!(!directory.join("ca.pem").exists(), "nothing is made beside what is there");
    }
}
