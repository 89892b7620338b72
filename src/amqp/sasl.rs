//! Authentication mechanisms: PLAIN, AMQPLAIN, and ANONYMOUS if a setting names its user (CONN-06,
//! CONN-10 to CONN-12, Q-06).

use bytes::Bytes;
use quorate_types::{FieldTable, ShortString};

/// Mechanisms offered, as connection.start lists them.
pub(crate) fn offered(anonymous: Option<&ShortString>) -> &'static str {
    if anonymous.is_some() { "PLAIN AMQPLAIN ANONYMOUS" } else { "PLAIN AMQPLAIN" }
}

/// The credentials that a client has sent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// Mechanism, for the refusal's text (CONN-14).
    pub(crate) mechanism: &'static str,
    pub(crate) user: ShortString,
    /// `None`: no password is required.
    pub(crate) password: Option<Bytes>,
}

impl std::fmt::Debug for Credentials {
    /// Leaves the password out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("mechanism", &self.mechanism)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Why there are no credentials. The reason is logged, but not sent to the client (CONN-10,
/// CONN-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SaslError {
    #[error("unknown authentication mechanism")]
    Mechanism,
    #[error("malformed response")]
    Response,
}

/// Decodes the response of start-ok; `anonymous` is the user of the mechanism ANONYMOUS.
pub(crate) fn credentials(
    mechanism: &[u8],
    response: &Bytes,
    anonymous: Option<&ShortString>,
) -> Result<Credentials, SaslError> {
    match (mechanism, anonymous) {
        (b"PLAIN", _) => plain(response),
        (b"AMQPLAIN", _) => amqplain(response.clone()),
        // The response may contain a name, which proves nothing and is ignored.
        (b"ANONYMOUS", Some(user)) => {
            Ok(Credentials { mechanism: "ANONYMOUS", user: user.clone(), password: None })
        }
        _ => Err(SaslError::Mechanism),
    }
}

/// NUL user NUL password; an authzid before the first NUL is not accepted (CONN-10).
fn plain(response: &Bytes) -> Result<Credentials, SaslError> {
    let mut parts = response.splitn(3, |&byte| byte == 0);
    let (Some([]), Some(user), Some(password)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(SaslError::Response);
    };
    if password.contains(&0) {
        return Err(SaslError::Response);
    }
    let user = ShortString::from_bytes(Bytes::copy_from_slice(user));
    Ok(Credentials {
        mechanism: "PLAIN",
        user: user.map_err(|_| SaslError::Response)?,
        password: Some(Bytes::copy_from_slice(password)),
    })
}

/// The content of a table with `LOGIN` and `PASSWORD` (CONN-11).
fn amqplain(response: Bytes) -> Result<Credentials, SaslError> {
    let table = FieldTable::decode_content(response).map_err(|_| SaslError::Response)?;
    let text = |name| table.get(name).and_then(|value| value.as_long_string().cloned());
    let (Some(user), Some(password)) = (text("LOGIN"), text("PASSWORD")) else {
        return Err(SaslError::Response);
    };
    let user = ShortString::from_bytes(user).map_err(|_| SaslError::Response)?;
    Ok(Credentials { mechanism: "AMQPLAIN", user: user.detached(), password: Some(password) })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use bytes::BytesMut;
    use quorate_types::FieldValue;

    fn plain(response: &'static [u8]) -> Result<(String, Vec<u8>), SaslError> {
        credentials(b"PLAIN", &Bytes::from_static(response), None)
            .map(|found| (found.user.to_string(), found.password.unwrap().to_vec()))
    }

    /// CONN-10: the format of the response for PLAIN.
    #[test]
    fn conn_10_plain_is_nul_user_nul_password() {
        assert_eq!(plain(b"\0guest\0secret"), Ok(("guest".into(), b"secret".to_vec())));
        assert_eq!(plain(b"\0guest\0"), Ok(("guest".into(), Vec::new())));
        assert_eq!(plain(b"admin\0guest\0secret"), Err(SaslError::Response));
        assert_eq!(plain(b"\0guest"), Err(SaslError::Response));
        assert_eq!(plain(b"\0a\0b\0c"), Err(SaslError::Response));
        assert_eq!(plain(b""), Err(SaslError::Response));
    }

    /// CONN-11: the format of the response for AMQPLAIN.
    #[test]
    fn conn_11_amqplain_is_the_content_of_a_table() {
        let mut content = BytesMut::new();
        let name = |text| ShortString::try_from(text).unwrap();
        FieldTable(vec![
            (name("LOGIN"), FieldValue::text("guest")),
            (name("PASSWORD"), FieldValue::text("secret")),
        ])
        .encode_content(&mut content);
        let found = credentials(b"AMQPLAIN", &content.freeze(), None).unwrap();
        assert_eq!((found.user.as_str(), &found.password.unwrap()[..]), ("guest", &b"secret"[..]));
        assert_eq!(credentials(b"AMQPLAIN", &Bytes::new(), None), Err(SaslError::Response));
    }

    /// CONN-12: other mechanisms, and other spellings, are refused.
    #[test]
    fn conn_12_other_mechanisms_are_unknown() {
        for mechanism in [&b"EXTERNAL"[..], b"ANONYMOUS", b"plain", b""] {
            assert_eq!(credentials(mechanism, &Bytes::new(), None), Err(SaslError::Mechanism));
        }
    }

    /// ANONYMOUS logs in as the user of the setting, if it is set.
    #[test]
    fn q_06_anonymous_stands_for_the_user_that_a_setting_names() {
        let named = ShortString::from_static("visitor");
        let found = credentials(b"ANONYMOUS", &Bytes::from_static(b"trace@me"), Some(&named));
        let found = found.unwrap();
        assert_eq!((found.user, found.password), (named.clone(), None));
        assert_eq!(offered(Some(&named)), "PLAIN AMQPLAIN ANONYMOUS");
        assert_eq!(offered(None), "PLAIN AMQPLAIN");
    }

    #[test]
    fn a_password_is_not_printed() {
        let found = credentials(b"PLAIN", &Bytes::from_static(b"\0guest\0secret"), None).unwrap();
        assert!(!format!("{found:?}").contains("secret"));
    }
}
