//! Policies, operator policies and runtime parameters (CTL-01 to CTL-03, CTL-08).

mod manuals;

pub(crate) use manuals::MANUALS;

use super::Console;
use super::command::{ParameterScope, PolicyVerb};
use super::connect::{PolicyClient, call_failure};
use super::exit::{Exit, Failure};
use super::format::{Sheet, render};
use super::job::Job;
use super::options::{Formatter, Invocation};
use super::value::Value;
use quorate_catalog::{PolicyKind, is_pattern_of};
use quorate_management::wire;
use tonic::{Code, Status, Streaming};

/// The positional argument at an index; the number of arguments has been checked.
pub(super) fn argument(invocation: &Invocation, place: usize) -> &str {
    invocation.arguments.get(place).map_or("", String::as_str)
}

fn word(kind: PolicyKind, user: &'static str, operator: &'static str) -> &'static str {
    match kind {
        PolicyKind::User => user,
        PolicyKind::Operator => operator,
    }
}

/// The line that rabbitmqctl prints before the answer.
fn banner(verb: PolicyVerb, invocation: &Invocation) -> String {
    let [first, second, third] = [0, 1, 2].map(|place| argument(invocation, place));
    let options = &invocation.options;
    let vhost = options.vhost();
    match verb {
        PolicyVerb::SetPolicy(kind) => {
            let kind = word(kind, "policy", "operator policy override");
            let priority = options.priority.unwrap_or(0);
            format!(
                "Setting {kind} \"{first}\" for pattern \"{second}\" to \"{third}\" with priority \
                 \"{priority}\" for vhost \"{vhost}\" ...\n"
            )
        }
        PolicyVerb::ClearPolicy(kind) => {
            let kind = word(kind, "policy", "operator policy");
            format!("Clearing {kind} \"{first}\" on vhost \"{vhost}\" ...\n")
        }
        PolicyVerb::ListPolicies(kind) => {
            let kind = word(kind, "policies", "operator policy overrides");
            format!("Listing {kind} for vhost \"{vhost}\" ...\n")
        }
        PolicyVerb::ListMatching => {
            let kind = options.value("object-type").unwrap_or("queue");
            format!("Listing policies that match {kind} '{first}' in vhost '{vhost}' ...\n")
        }
        PolicyVerb::SetClusterName => format!("Setting cluster name to {first} ...\n"),
        PolicyVerb::SetParameter(ParameterScope::VirtualHost) => format!(
            "Setting runtime parameter \"{second}\" for component \"{first}\" to \"{third}\" in \
             vhost \"{vhost}\" ...\n"
        ),
        PolicyVerb::SetParameter(ParameterScope::Global) => {
            format!("Setting global runtime parameter \"{first}\" to \"{second}\" ...\n")
        }
        PolicyVerb::ClearParameter(ParameterScope::VirtualHost) => format!(
            "Clearing runtime parameter \"{second}\" for component \"{first}\" on vhost \
             \"{vhost}\" ...\n"
        ),
        PolicyVerb::ClearParameter(ParameterScope::Global) => {
            format!("Clearing global runtime parameter \"{first}\" ...\n")
        }
        PolicyVerb::ListParameters(ParameterScope::VirtualHost) => {
            format!("Listing runtime parameters for vhost \"{vhost}\" ...\n")
        }
        PolicyVerb::ListParameters(ParameterScope::Global) => {
            "Listing global runtime parameters ...\n".to_owned()
        }
    }
}

/// Carries out a verb.
pub(super) async fn run(
    verb: PolicyVerb,
    job: &Job<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    if job.invocation.options.banners() {
        console.say(&banner(verb, job.invocation));
    }
    let mut connected = job.connect().await?;
    obey(verb, job.invocation, &mut connected.policies, console).await
}

async fn obey(
    verb: PolicyVerb,
    invocation: &Invocation,
    client: &mut PolicyClient,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let options = &invocation.options;
    let done = match verb {
        PolicyVerb::SetPolicy(kind) => {
            client.set_policy(set_policy(kind, invocation)).await.map(drop)
        }
        PolicyVerb::ClearPolicy(kind) => {
            client.clear_policy(policy_request(kind, invocation)).await.map(drop)
        }
        PolicyVerb::SetParameter(scope) => {
            client.set_parameter(set_parameter(scope, invocation)).await.map(drop)
        }
        PolicyVerb::ClearParameter(scope) => {
            client.clear_parameter(parameter_request(scope, invocation)).await.map(drop)
        }
        PolicyVerb::ListPolicies(kind) => {
            let listed = client.list_policies(policy_request(kind, invocation)).await;
            let sheet = policies(collect(listed).await?);
            console.say(&render(&sheet, options.formatter(), options.headers()));
            Ok(())
        }
        PolicyVerb::ListMatching => {
            let sheet = policies(matching(invocation, client).await?);
            let formatter = options.formatter.unwrap_or(Formatter::Pretty);
            console.say(&render(&sheet, formatter, options.headers()));
            Ok(())
        }
        PolicyVerb::SetClusterName => {
            client.set_parameter(cluster_name_request(invocation)).await.map(drop)
        }
        PolicyVerb::ListParameters(scope) => {
            let listed = client.list_parameters(parameter_request(scope, invocation)).await;
            let sheet = parameters(scope, collect(listed).await?);
            console.say(&render(&sheet, options.formatter(), options.headers()));
            Ok(())
        }
    };
    done.map_err(|status| refusal(&status))
}

/// The refusal of a node, as RabbitMQ's text and exit code.
pub(super) fn refusal(status: &Status) -> Failure {
    let told = |exit| Failure::new(exit, format!("Error:\n{}\n", status.message()));
    if matches!(status.code(), Code::InvalidArgument | Code::FailedPrecondition) {
        return told(Exit::Unavailable);
    }
    if status.code() == Code::NotFound { told(Exit::Data) } else { call_failure(status) }
}

async fn collect<T>(
    answer: Result<tonic::Response<Streaming<T>>, Status>,
) -> Result<Vec<T>, Failure> {
    let mut stream = answer.map_err(|status| refusal(&status))?.into_inner();
    let mut items = Vec::new();
    while let Some(item) = stream.message().await.map_err(|status| call_failure(&status))? {
        items.push(item);
    }
    Ok(items)
}

/// The global parameter with the name of the cluster.
const CLUSTER_NAME: &str = "cluster_name";

fn cluster_name_request(invocation: &Invocation) -> wire::SetParameterRequest {
    let value = serde_json::Value::from(argument(invocation, 0)).to_string();
    let name = CLUSTER_NAME.to_owned();
    let parameter = Some(wire::Parameter { name, value, ..wire::Parameter::default() });
    wire::SetParameterRequest { caller: wire::caller(), parameter }
}

/// The name of the cluster that was set, if one was.
pub(super) async fn cluster_name(client: &mut PolicyClient) -> Result<Option<String>, Failure> {
    let request = wire::ParameterRequest { caller: wire::caller(), ..Default::default() };
    let parameters = collect(client.list_parameters(request).await).await?;
    let named = parameters.into_iter().find(|parameter| parameter.name == CLUSTER_NAME);
    Ok(named.and_then(|parameter| serde_json::from_str(&parameter.value).ok()))
}

/// The policies of a virtual host.
pub(super) async fn of_vhost(
    kind: PolicyKind,
    vhost: &str,
    client: &mut PolicyClient,
) -> Result<Vec<wire::Policy>, Failure> {
    let request = wire::PolicyRequest {
        caller: wire::caller(),
        operator: kind == PolicyKind::Operator,
        vhost: vhost.to_owned(),
        name: String::new(),
    };
    collect(client.list_policies(request).await).await
}

/// The policies that match a name, the one with the highest priority first.
async fn matching(
    invocation: &Invocation,
    client: &mut PolicyClient,
) -> Result<Vec<wire::Policy>, Failure> {
    let options = &invocation.options;
    let of_queues = match options.value("object-type") {
        None | Some("queue") => true,
        Some("exchange") => false,
        Some(other) => {
            let text = format!("Error:\n--object-type is queue or exchange, not '{other}'\n");
            return Err(Failure::new(Exit::Data, text));
        }
    };
    let mut policies = of_vhost(PolicyKind::User, options.vhost(), client).await?;
    policies.retain(|policy| {
        let applies = match policy.apply_to.as_str() {
            "all" => true,
            "exchanges" => !of_queues,
            _ => of_queues,
        };
        applies && is_pattern_of(&policy.pattern, argument(invocation, 0))
    });
    policies.sort_by_key(|policy| std::cmp::Reverse(policy.priority));
    Ok(policies)
}

/// The request that sets a policy.
pub(super) fn set_policy(kind: PolicyKind, invocation: &Invocation) -> wire::SetPolicyRequest {
    let options = &invocation.options;
    let policy = wire::Policy {
        operator: kind == PolicyKind::Operator,
        vhost: options.vhost().to_owned(),
        name: argument(invocation, 0).to_owned(),
        pattern: argument(invocation, 1).to_owned(),
        definition: argument(invocation, 2).to_owned(),
        apply_to: options.apply_to.clone().unwrap_or_else(|| "all".to_owned()),
        priority: options.priority.unwrap_or(0),
    };
    wire::SetPolicyRequest { caller: wire::caller(), policy: Some(policy) }
}

/// The request about a policy.
pub(super) fn policy_request(kind: PolicyKind, invocation: &Invocation) -> wire::PolicyRequest {
    wire::PolicyRequest {
        caller: wire::caller(),
        operator: kind == PolicyKind::Operator,
        vhost: invocation.options.vhost().to_owned(),
        name: argument(invocation, 0).to_owned(),
    }
}

fn set_parameter(scope: ParameterScope, invocation: &Invocation) -> wire::SetParameterRequest {
    let value = match scope {
        ParameterScope::VirtualHost => 2,
        ParameterScope::Global => 1,
    };
    let wire::ParameterRequest { vhost, component, name, .. } =
        parameter_request(scope, invocation);
    let value = argument(invocation, value).to_owned();
    let parameter = Some(wire::Parameter { vhost, component, name, value });
    wire::SetParameterRequest { caller: wire::caller(), parameter }
}

fn parameter_request(scope: ParameterScope, invocation: &Invocation) -> wire::ParameterRequest {
    let [first, second] = [0, 1].map(|place| argument(invocation, place).to_owned());
    let caller = wire::caller();
    if scope == ParameterScope::Global {
        return wire::ParameterRequest {
            caller,
            vhost: None,
            component: String::new(),
            name: first,
        };
    }
    let vhost = Some(invocation.options.vhost().to_owned());
    wire::ParameterRequest { caller, vhost, component: first, name: second }
}

fn sheet(columns: &[&str], rows: impl Iterator<Item = Vec<Value>>) -> Sheet {
    Sheet { columns: columns.iter().map(|name| (*name).to_owned()).collect(), rows: rows.collect() }
}

fn policies(policies: Vec<wire::Policy>) -> Sheet {
    let rows = policies.into_iter().map(|policy| {
        vec![
            Value::text(policy.vhost),
            Value::text(policy.name),
            Value::text(policy.pattern),
            Value::text(policy.apply_to),
            Value::text(policy.definition),
            Value::Integer(policy.priority),
        ]
    });
    sheet(&["vhost", "name", "pattern", "apply-to", "definition", "priority"], rows)
}

fn parameters(scope: ParameterScope, parameters: Vec<wire::Parameter>) -> Sheet {
    let rows = parameters.into_iter().map(|parameter| {
        let named = [Value::text(parameter.name), Value::text(parameter.value)];
        let component =
            (scope == ParameterScope::VirtualHost).then(|| Value::text(parameter.component));
        component.into_iter().chain(named).collect()
    });
    let columns: &[&str] = if scope == ParameterScope::Global {
        &["name", "value"]
    } else {
        &["component", "name", "value"]
    };
    sheet(columns, rows)
}
