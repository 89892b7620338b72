//! Paths and queries of requests: cut into parts, then percent-decoded, so that `%2F` within a name
//! does not separate. Pure.

/// The segments of a path below `/api`, decoded, without a slash at the end. `None`: a segment is not
/// percent-encoded UTF-8.
pub(crate) fn segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix("/api").unwrap_or(path);
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Some(Vec::new());
    }
    path.split('/').map(|one| decoded(one, false)).collect()
}

/// Percent-decodes a text; in a query a plus sign is a blank.
pub(crate) fn decoded(text: &str, plus_is_blank: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            b'+' if plus_is_blank => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Encodes a text as RabbitMQ encodes routing keys in `properties_key`: a blank as a plus sign.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// Encodes a text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    encoded(text).replace('+', "%20").replace("%7E", "~")
}

/// The text about a parameter that cannot be decoded. Such a request is refused: without the parameter
/// its filter would be missing, and the answer would have all objects.
pub(crate) fn not_decoded(parameter: &str) -> String {
    format!("query: '{parameter}' is not percent-encoded UTF-8")
}

/// The parameters of a query, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Cuts a query into its parameters.
    ///
    /// # Errors
    /// The parameter that is not percent-encoded UTF-8, as it was given.
    pub(crate) fn parse(query: &str) -> Result<Self, &str> {
        let parameter = |part| {
            let (name, value) = str::split_once(part, '=').unwrap_or((part, ""));
            let decoded = decoded(name, true).zip(decoded(value, true));
            decoded.ok_or(part)
        };
        query
            .split('&')
            .filter(|part| !part.is_empty())
            .map(parameter)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// All parameters, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The first value of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// All values of that name, in their order.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// True if the parameter is `true`.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_path_is_cut_before_it_is_decoded() {
        let cases: [(&str, &[&str]); 7] = [
            ("/api/queues/%2F/a%2Fb", &["queues", "/", "a/b"]),
            ("/api//users//", &["", "users", ""]),
            ("/api/users/", &["users"]),
            ("/api", &[]),
            ("/api/", &[]),
            (
                "/api/bindings/%2f/e/a+b/q/%C3%BC/x%2By",
                &["bindings", "/", "e", "a+b", "q", "ü", "x+y"],
            ),
            ("/api/queues/%25", &["queues", "%"]),
        ];
        for (path, expected) in cases {
            assert_eq!(segments(path).unwrap(), expected, "{path}");
        }
        for wrong in ["/api/%", "/api/%2", "/api/%zz", "/api/%ff"] {
            assert_eq!(segments(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_query_has_blanks_as_plus_signs() {
        let query = Query::parse("page=1&name=a+b%2B&&use_regex=true&columns=").unwrap();
        assert_eq!(query.get("page"), Some("1"));
        assert_eq!(query.get("name"), Some("a b+"));
        assert!(query.is_true("use_regex") && !query.is_true("page"));
        assert_eq!(query.get("columns"), Some(""));
        assert_eq!(query.get("sort"), None);
        // A filter that is left out would be none.
        assert_eq!(Query::parse("page=1&name=%ff&sort=a"), Err("name=%ff"));
    }

    /// As in the golden replies.
    #[test]
    fn keys_are_encoded_as_rabbitmq_does() {
        assert_eq!(encoded("a b/c"), "a+b%2Fc");
        assert_eq!(encoded("order.#"), "order.%23");
        assert_eq!(encoded("a~b"), "a%7Eb");
        assert_eq!(segment("a+b%2Fc~9nmLZQ"), "a%2Bb%252Fc~9nmLZQ");
    }
}
