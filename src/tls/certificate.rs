//! Who a certificate stands for: its subject, its names, and the user that it logs in.

use tokio_rustls::rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, ServerName},
    server::ParsedCertificate,
};
use x509_parser::{
    certificate::X509Certificate,
    extensions::GeneralName,
    oid_registry::{
        OID_DOMAIN_COMPONENT, OID_X509_COMMON_NAME, OID_X509_COUNTRY_NAME, OID_X509_LOCALITY_NAME,
        OID_X509_ORGANIZATION_NAME, OID_X509_ORGANIZATIONAL_UNIT, OID_X509_STATE_OR_PROVINCE_NAME,
        OID_X509_STREET_ADDRESS, Oid,
    },
    parse_x509_certificate,
    time::ASN1Time,
    x509::{AttributeTypeAndValue, X509Name},
};

/// The part of a client's certificate that is its user's name (RabbitMQ: `ssl_cert_login_from`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginFrom {
    /// The common name of the subject; several are joined with commas.
    CommonName,
    /// The first DNS name among the subject alternative names.
    SubjectAlternativeName,
    /// The whole subject, as RFC 4514 writes it.
    DistinguishedName,
}

/// A certificate that the other end has shown, and that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate(CertificateDer<'static>);

impl Certificate {
    pub(crate) fn new(der: &CertificateDer<'_>) -> Self {
        Self(der.clone().into_owned())
    }

    /// Whether a subject alternative name is this host, a name or an address. The common name does
    /// not count.
    #[must_use]
    pub fn names(&self, host: &str) -> bool {
        let (Ok(name), Ok(certificate)) =
            (ServerName::try_from(host), ParsedCertificate::try_from(&self.0))
        else {
            return false;
        };
        verify_server_name(&certificate, &name).is_ok()
    }

    /// The user that the certificate logs in; `None` if it lacks that name.
    #[must_use]
    pub fn user(&self, from: LoginFrom) -> Option<String> {
        let certificate = self.parsed()?;
        let user = match from {
            LoginFrom::CommonName => {
                let names = certificate.subject().iter_common_name();
                let names: Vec<&str> = names.filter_map(|name| name.as_str().ok()).collect();
                names.join(",")
            }
            LoginFrom::SubjectAlternativeName => first_dns_name(&certificate)?,
            LoginFrom::DistinguishedName => rfc4514(certificate.subject()),
        };
        (!user.is_empty()).then_some(user)
    }

    /// The subject, as RFC 4514 writes it.
    #[must_use]
    pub fn subject(&self) -> String {
        self.parsed().map(|certificate| rfc4514(certificate.subject())).unwrap_or_default()
    }

    /// The issuer, as RFC 4514 writes it.
    #[must_use]
    pub fn issuer(&self) -> String {
        self.parsed().map(|certificate| rfc4514(certificate.issuer())).unwrap_or_default()
    }

    /// First and last second in which it is valid, as RabbitMQ writes them.
    #[must_use]
    pub fn validity(&self) -> String {
        let validity = self.parsed().map(|certificate| certificate.validity().clone());
        validity.map_or_else(String::new, |validity| {
            format!("{} - {}", second(validity.not_before), second(validity.not_after))
        })
    }

    /// First and last second in which it is valid, since 1970; `None` if it cannot be read.
    #[must_use]
    pub fn valid_seconds(&self) -> Option<(i64, i64)> {
        let certificate = self.parsed()?;
        let validity = certificate.validity();
        Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
    }

    fn parsed(&self) -> Option<X509Certificate<'_>> {
        parse_x509_certificate(&self.0).ok().map(|(_, certificate)| certificate)
    }
}

fn first_dns_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let names = certificate.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| {
        if let GeneralName::DNSName(name) = name { Some((*name).to_owned()) } else { None }
    })
}

/// Such as 2026-11-25T02:00:00Z.
fn second(time: ASN1Time) -> String {
    let time = time.to_datetime();
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The last relative name first.
fn rfc4514(name: &X509Name<'_>) -> String {
    let mut names: Vec<String> =
        name.iter().map(|name| name.iter().map(attribute).collect::<Vec<_>>().join("+")).collect();
    names.reverse();
    names.join(",")
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let kind = kind(attribute.attr_type());
    match attribute.as_str() {
        Ok(text) => format!("{kind}={}", escaped(text)),
        Err(_) => {
            let bytes = attribute.attr_value().data;
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{kind}=#{digits}")
        }
    }
}

/// The short names of RFC 4514; other attributes have their number.
fn kind(oid: &Oid<'_>) -> String {
    let short = [
        (OID_X509_COMMON_NAME, "CN"),
        (OID_X509_LOCALITY_NAME, "L"),
        (OID_X509_STATE_OR_PROVINCE_NAME, "ST"),
        (OID_X509_ORGANIZATION_NAME, "O"),
        (OID_X509_ORGANIZATIONAL_UNIT, "OU"),
        (OID_X509_COUNTRY_NAME, "C"),
        (OID_X509_STREET_ADDRESS, "STREET"),
        (OID_DOMAIN_COMPONENT, "DC"),
    ];
    let found = short.iter().find(|(known, _)| known == oid);
    found.map_or_else(|| oid.to_id_string(), |(_, short)| (*short).to_owned())
}

fn escaped(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut escaped = String::with_capacity(text.len());
    for (at, letter) in text.chars().enumerate() {
        let at_an_end = (letter == ' ' && (at == 0 || at == last)) || (letter == '#' && at == 0);
        if at_an_end || matches!(letter, '"' | '+' | ',' | ';' | '<' | '>' | '\\') {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}
