//! What a policy, the end of one, or definitions would do, without doing it: below
//! `quorate/dry-run`. The bodies and the rights are those of the requests that would do it; DELETE is
//! the dry run of DELETE.

use crate::api::call::{Answer, Api, Call};
use crate::api::definitions::{text, text_of_vhost};
use crate::api::policies::given;
use crate::api::quorate_browse::answer;
use crate::api::refusal::Refusal;
use crate::api::route::Method;
use quorate_broker::DryRun;
use quorate_catalog::{PolicyKind, PolicyName};

async fn weighed(api: &Api, run: DryRun) -> Result<Answer, Refusal> {
    answer(api.browser.weighed(run).await)
}

/// What setting or clearing a policy would do.
pub(crate) async fn policy(api: &Api, call: &Call, kind: PolicyKind) -> Result<Answer, Refusal> {
    let vhost = call.vhost(api)?;
    let dry_runs = api.broker.dry_runs();
    if call.method == Method::Delete {
        let name = PolicyName { kind, vhost, name: call.short("name")? };
        if !api.broker.views().policies(kind, &name.vhost)?.iter().any(|it| it.name == name.name) {
            return Err(Refusal::NoObject);
        }
        return weighed(api, dry_runs.clear_policy(name).await?).await;
    }
    let policy = given(kind, &vhost, &call.new_name("name")?, &call.fields()?)?;
    weighed(api, dry_runs.policy(policy).await?).await
}

/// What definitions would do.
pub(crate) async fn definitions(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let run = api.broker.dry_runs().definitions(text(call)?.into()).await?;
    weighed(api, run).await
}

/// What definitions of a virtual host would do.
pub(crate) async fn vhost_definitions(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let text = text_of_vhost(call, &call.vhost(api)?)?;
    weighed(api, api.broker.dry_runs().definitions(text.into()).await?).await
}
