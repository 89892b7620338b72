//! The effective settings of a queue, and which argument or policy each one comes from:
//! `quorate/queues/{vhost}/{queue}/settings`.

use crate::api::call::{Answer, Api, Call};
use crate::api::quorate_browse::answer;
use crate::api::refusal::Refusal;
use crate::wire;

/// The settings of a queue.
pub(crate) async fn settings(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let name = call.resource(api, "queue")?;
    let request = wire::SettingsRequest {
        caller: wire::caller(),
        scope: wire::Scope::Cluster.into(),
        vhost: name.vhost.to_string(),
        queue: name.name.to_string(),
    };
    answer(api.browser.settings(request).await)
}
