//! Users: `/api/users` and below.

use crate::api::body::Fields;
use crate::api::call::{Answer, Api, Call};
use crate::api::json::short;
use crate::api::refusal::{Refusal, bad_request};
use crate::api::route::Method;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use quorate_broker::{ChangeError, hash_password};
use quorate_catalog::{AccessCommand, Denial, HashAlgorithm, PasswordHash, UserLimits, UserRecord};
use quorate_types::ShortString;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How lists of users are sorted.
const ORDER: &[&str] = &["name"];
/// Users of one bulk deletion.
const BULK_MAX: usize = 10_000;

/// A user as lists show it.
fn shape(user: &UserRecord) -> Value {
    let tags: Vec<_> = user.tags.iter().map(ShortString::as_str).collect();
    json!({
        "name": user.name.as_str(),
        "password_hash": STANDARD.encode(&user.password.bytes),
        "hashing_algorithm": user.password.algorithm.name(),
        "tags": tags,
        "limits": user.limits.to_json(),
    })
}

/// All users, or those without permissions in any virtual host.
pub(crate) fn list(api: &Api, without_permissions: bool) -> Answer {
    let views = api.broker.views();
    let mut users = views.users();
    if without_permissions {
        let with: BTreeSet<_> = views.permissions().into_iter().map(|row| row.user).collect();
        users.retain(|user| !with.contains(&user.name));
    }
    Answer::list(ORDER, move || users.iter().map(shape).collect())
}

/// One user: reads, makes, changes or deletes it.
pub(crate) async fn one(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    match call.method {
        Method::Get => {
            let user = api.broker.lookup().user(&call.short("user")?);
            Ok(Answer::object(shape(&user.ok_or(Refusal::NoObject)?)))
        }
        Method::Put | Method::Post => put(api, call).await,
        Method::Delete => {
            let user = call.short("user")?;
            api.broker.operator().change_access(AccessCommand::DeleteUser { user }).await?;
            Ok(Answer::done())
        }
    }
}

/// What a request says of a user.
#[derive(Debug, PartialEq)]
struct Given {
    password: PasswordHash,
    tags: Vec<ShortString>,
    limits: UserLimits,
}

fn given(fields: &Fields) -> Result<Given, Refusal> {
    let tags = match (fields.words("tags")?, fields.get("administrator")) {
        (Some(tags), _) => tags,
        (None, Some(_)) if fields.flag("administrator", false)? => {
            vec![ShortString::from_static("administrator")]
        }
        (None, Some(_)) => Vec::new(),
        (None, None) => return bad_request("tags_not_present"),
    };
    let limits = Fields::of(fields.object("limits")?);
    let limits = UserLimits {
        connections_max: limits.optional_integer("max-connections")?,
        channels_max: limits.optional_integer("max-channels")?,
    };
    Ok(Given { password: password(fields)?, tags, limits })
}

/// The password's hash; without a password nobody logs in with one.
fn password(fields: &Fields) -> Result<PasswordHash, Refusal> {
    match (fields.get("password"), fields.get("password_hash")) {
        (Some(_), Some(_)) => bad_request("both_password_and_password_hash_are_provided"),
        (Some(_), None) => hash_password(fields.text("password")?.as_bytes())
            .map_err(|error| Refusal::BadRequest(error.to_string())),
        (None, Some(_)) => {
            let algorithm = match fields.optional_text("hashing_algorithm")? {
                None => HashAlgorithm::default(),
                Some(name) => HashAlgorithm::parse(name).ok_or_else(|| {
                    Refusal::BadRequest(format!("unknown hashing_algorithm '{name}'"))
                })?,
            };
            let bytes = STANDARD.decode(fields.text("password_hash")?).map_err(|error| {
                Refusal::BadRequest(format!("password_hash is not base64: {error}"))
            })?;
            Ok(PasswordHash { algorithm, bytes })
        }
        (None, None) => Ok(PasswordHash::default()),
    }
}

async fn put(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let (name, given) = (call.new_name("user")?, given(&call.fields()?)?);
    let was_there = api.broker.lookup().user(&name).is_some();
    // As definitions of one user: password, tags and limits change together or not at all.
    let Given { password, tags, limits } = given;
    let definitions = json!({ "users": [shape(&UserRecord { name, password, tags, limits })] });
    api.broker.operator().import_definitions(definitions.to_string().into()).await?;
    Ok(Answer::put(!was_there))
}

/// The users that a bulk deletion names.
fn named(fields: &Fields) -> Result<Vec<ShortString>, Refusal> {
    let Some(users) = fields.required("users")?.as_array() else {
        return bad_request("users must be an array of strings");
    };
    if users.len() > BULK_MAX {
        return bad_request(format!("users: more than {BULK_MAX}"));
    }
    let name = |user: &Value| match user.as_str() {
        Some(name) => short("users", name),
        None => bad_request("users must be an array of strings"),
    };
    users.iter().map(name).collect()
}

/// Deletes several users; one that is not there is deleted already.
pub(crate) async fn bulk_delete(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    for user in named(&call.fields()?)? {
        let deleted = api.broker.operator().change_access(AccessCommand::DeleteUser { user }).await;
        match deleted {
            Ok(()) | Err(ChangeError::Denied(Denial::NoSuchUser(_))) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Ok(Answer::done())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::api::tests::assert_has_keys;

    fn parse(body: &str) -> Result<Given, Refusal> {
        given(&Fields::parse(body.as_bytes()).unwrap())
    }

    #[test]
    fn a_user_has_the_keys_of_rabbitmqs() {
        let user = UserRecord {
            name: ShortString::from_static("u"),
            password: PasswordHash::default(),
            tags: vec![ShortString::from_static("monitoring")],
            limits: UserLimits::default(),
        };
        let shown = shape(&user);
        assert_has_keys(&shown, include_str!("gold/users.json"), &[]);
        assert_eq!(shown.get("tags"), Some(&json!(["monitoring"])));
        assert_eq!(shown.get("limits"), Some(&json!({})));
    }

    #[test]
    fn acl_23_a_user_is_given_with_a_password_or_its_hash() {
        let plain = parse(r#"{"password":"x","tags":"monitoring,management"}"#).unwrap();
        assert!(plain.password.is_of(b"x"));
        assert_eq!(plain.tags.len(), 2);
        let hash = STANDARD.encode(&plain.password.bytes);
        let hashed = parse(&format!(r#"{{"password_hash":"{hash}","tags":["administrator"]}}"#));
        assert!(hashed.unwrap().password.is_of(b"x"));
        let none = parse(r#"{"tags":"","limits":{"max-channels":5}}"#).unwrap();
        assert_eq!(none.password, PasswordHash::default());
        assert_eq!((none.tags.len(), none.limits.channels_max), (0, Some(5)));
        assert_eq!(parse(r#"{"administrator":true}"#).unwrap().tags.len(), 1);
    }

    #[test]
    fn wrong_users_are_refused() {
        for wrong in [
            "{}",
            r#"{"tags":1}"#,
            r#"{"tags":"","password":"a","password_hash":"b"}"#,
            r#"{"tags":"","password_hash":"??"}"#,
            r#"{"tags":"","password_hash":"","hashing_algorithm":"rot13"}"#,
            r#"{"tags":"","limits":{"max-channels":"x"}}"#,
            r#"{"tags":"","password":1}"#,
        ] {
            assert!(matches!(parse(wrong), Err(Refusal::BadRequest(_))), "{wrong}");
        }
        let long = format!(r#"{{"tags":"","password":"{}"}}"#, "x".repeat(5_000));
        assert!(parse(&long).is_err());
        let names = |body: &str| named(&Fields::parse(body.as_bytes()).unwrap());
        assert_eq!(names(r#"{"users":["a","b"]}"#).unwrap().len(), 2);
        assert!(names(r#"{"users":"a"}"#).is_err() && names(r#"{"users":[1]}"#).is_err());
    }
}
