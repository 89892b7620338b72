//! Why a request is refused: RabbitMQ's status, body and headers for each reason.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use quorate_broker::{ChangeError, ImportError};
use quorate_catalog::Denial;
use quorate_types::{Exception, ReplyCode};
use serde_json::json;

/// What browsers are told about every answer in JSON: to take it as nothing else.
pub(crate) const JSON_HEADERS: [(HeaderName, &str); 2] =
    [(header::CONTENT_TYPE, "application/json"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];

/// Why a request is refused. The text is the `reason` of its answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// No user, or a wrong password.
    #[error("Login failed")]
    NotLoggedIn,
    /// The web page's session is not in force, or none was begun. Without a question for a password,
    /// for which browsers show a dialog.
    #[error("{0}")]
    NoSession(&'static str),
    /// A change in the name of a session that may have been made by another site.
    #[error("{0}")]
    Forged(&'static str),
    /// The user may not do this.
    #[error("{0}")]
    NotAuthorised(String),
    /// The object of the path is not there.
    #[error("Not Found")]
    NoObject,
    /// Something that the request names is not there.
    #[error("{0}")]
    NotFound(String),
    /// A parameter, header or body is wrong.
    #[error("{0}")]
    BadRequest(String),
    /// Parameters of paging are wrong; with RabbitMQ's word for what is wrong.
    #[error("{reason}")]
    BadPage {
        /// RabbitMQ's word.
        error: &'static str,
        /// The parameters.
        reason: String,
    },
    /// The path does not take the method; it takes these.
    #[error("Method Not Allowed")]
    Method(String),
    /// RabbitMQ's answer to operations that its settings do not allow.
    #[error("{0}")]
    NotOffered(String),
    /// The object is protected against the change.
    #[error("{0}")]
    Protected(String),
    /// The body must be declared as JSON.
    #[error("Unsupported Media Type")]
    MediaType,
    /// The cluster, or this node, cannot do it now.
    #[error("{0}")]
    Unavailable(String),
}

/// A refusal of a request that says what is wrong with it.
pub(crate) fn not_authorised() -> Refusal {
    Refusal::NotAuthorised("User not authorised to access object".to_owned())
}

pub(crate) fn bad_request<T>(reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::BadRequest(reason.into()))
}

impl Refusal {
    /// The status, and RabbitMQ's word for it.
    fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotLoggedIn => (StatusCode::UNAUTHORIZED, "not_authorized"),
            Self::NoSession(_) => (StatusCode::UNAUTHORIZED, "not_authorized"),
            Self::Forged(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::NotAuthorised(_) => (StatusCode::UNAUTHORIZED, "not_authorised"),
            Self::NoObject => (StatusCode::NOT_FOUND, "Object Not Found"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::BadPage { error, .. } => (StatusCode::BAD_REQUEST, error),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
            Self::NotOffered(_) => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::Protected(_) => (StatusCode::PRECONDITION_FAILED, "precondition_failed"),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, ""),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "service_unavailable"),
        }
    }

    /// The refusal of a message that was published or got: RabbitMQ shows the reply code too.
    pub(crate) fn of_channel(exception: &Exception) -> Self {
        let refusal = Self::from(exception.clone());
        if matches!(refusal, Self::BadRequest(_)) {
            return Self::BadRequest(format!("{} {exception}", exception.code.number()));
        }
        refusal
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, error) = self.status();
        // RabbitMQ's answer to a body of another type has none.
        if self == Self::MediaType {
            return status.into_response();
        }
        let body = json!({ "error": error, "reason": self.to_string() }).to_string();
        let mut response = (status, JSON_HEADERS, body).into_response();
        let headers = response.headers_mut();
        match &self {
            Self::NotLoggedIn => {
                let realm = HeaderValue::from_static("Basic realm=\"RabbitMQ Management\"");
                headers.insert(header::WWW_AUTHENTICATE, realm);
            }
            Self::Method(allowed) => {
                headers.extend(
                    HeaderValue::from_str(allowed).ok().map(|allowed| (header::ALLOW, allowed)),
                );
            }
            Self::NoSession(_)
            | Self::Forged(_)
            | Self::NotAuthorised(_)
            | Self::NoObject
            | Self::NotFound(_)
            | Self::BadRequest(_)
            | Self::BadPage { .. }
            | Self::NotOffered(_)
            | Self::Protected(_)
            | Self::MediaType
            | Self::Unavailable(_) => {}
        }
        response
    }
}

impl From<Exception> for Refusal {
    fn from(exception: Exception) -> Self {
        let text = exception.explanation;
        match exception.code {
            ReplyCode::NotFound => Self::NotFound(text),
            ReplyCode::AccessRefused | ReplyCode::NotAllowed => Self::NotAuthorised(text),
            ReplyCode::ConnectionForced | ReplyCode::InternalError | ReplyCode::ResourceError => {
                Self::Unavailable(text)
            }
            ReplyCode::PreconditionFailed
            | ReplyCode::ResourceLocked
            | ReplyCode::ContentTooLarge
            | ReplyCode::NoRoute
            | ReplyCode::NoConsumers
            | ReplyCode::InvalidPath
            | ReplyCode::FrameError
            | ReplyCode::SyntaxError
            | ReplyCode::CommandInvalid
            | ReplyCode::ChannelError
            | ReplyCode::UnexpectedFrame
            | ReplyCode::NotImplemented => Self::BadRequest(text),
        }
    }
}

impl From<ChangeError> for Refusal {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Denied(Denial::NoSuchUser(_) | Denial::NoSuchVhost(_)) => Self::NoObject,
            ChangeError::Denied(denial @ Denial::VhostProtected(_)) => {
                Self::Protected(denial.to_string())
            }
            ChangeError::Denied(denial @ Denial::ProtectionTooEarly { .. }) => {
                Self::Unavailable(denial.to_string())
            }
            ChangeError::Denied(
                denial @ (Denial::UserExists(_)
                | Denial::InvalidPattern { .. }
                | Denial::TooManyTags { .. }
                | Denial::Member(_)
                | Denial::Task(_)),
            ) => Self::BadRequest(denial.to_string()),
            ChangeError::TimedOut => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<ImportError> for Refusal {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Invalid(error) => Self::BadRequest(error.to_string()),
            ImportError::Unavailable(text) => Self::Unavailable(text),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    async fn answered(refusal: Refusal) -> (u16, String) {
        let response = refusal.into_response();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// As in the golden replies.
    #[tokio::test]
    async fn refusals_have_rabbitmqs_statuses_and_bodies() {
        let inequivalent = Exception::new(ReplyCode::PreconditionFailed, "inequivalent arg");
        for (refusal, status, body) in [
            (Refusal::NotLoggedIn, 401, r#"{"error":"not_authorized","reason":"Login failed"}"#),
            (Refusal::NoObject, 404, r#"{"error":"Object Not Found","reason":"Not Found"}"#),
            (
                Refusal::from(inequivalent.clone()),
                400,
                r#"{"error":"bad_request","reason":"inequivalent arg"}"#,
            ),
            (
                Refusal::of_channel(&inequivalent),
                400,
                r#"{"error":"bad_request","reason":"406 PRECONDITION_FAILED - inequivalent arg"}"#,
            ),
            (Refusal::MediaType, 415, ""),
        ] {
            assert_eq!(answered(refusal).await, (status, body.to_owned()));
        }
    }

    #[test]
    fn who_is_not_known_is_asked_for_a_password() {
        let response = Refusal::NotLoggedIn.into_response();
        let realm = response.headers().get(header::WWW_AUTHENTICATE).unwrap();
        assert_eq!(realm, "Basic realm=\"RabbitMQ Management\"");
        let response = Refusal::NoSession("no session").into_response();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(response.headers().get(header::WWW_AUTHENTICATE), None);
        let response = Refusal::Method("GET, HEAD".to_owned()).into_response();
        assert_eq!(response.headers().get(header::ALLOW).unwrap(), "GET, HEAD");
    }
}
