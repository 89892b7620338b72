//! The service of policies, runtime parameters and definitions: the texts of operators are parsed
//! and validated here (POL-20 to POL-25), and proposed as typed commands.

use crate::admin::{check, opened, vhost};
use crate::audit::{Operator, within};
use crate::convert::refusal;
use crate::facts::NodeFacts;
use crate::parts::blocking;
use crate::wire::{self, policies_server::Policies};
use bytes::Bytes;
use quorate_broker::{Broker, ImportError, Imported};
use quorate_catalog::{
    ParameterName, ParameterRecord, PolicyKind, PolicyName, PolicyRecord, PolicyText,
};
use quorate_types::ShortString;
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

/// The service of policies: every node can change the catalog.
#[derive(Clone, Debug)]
pub struct PolicyService {
    broker: Broker,
    facts: Arc<NodeFacts>,
}

/// Bytes of definitions in one message, far below the 4 MiB that gRPC takes.
const CHUNK_BYTES: usize = 1 << 20;

/// Maximum of bytes of imported definitions: some hundred thousand objects.
const DEFINITIONS_BYTES_MAX: usize = 64 << 20;

/// All definitions as JSON. `None`: the export has failed.
pub(crate) async fn exported_definitions(broker: &Broker, facts: &NodeFacts) -> Option<String> {
    let (broker, version) = (broker.clone(), facts.product_version.clone());
    blocking(move || broker.views().export_definitions(&version)).await
}

type Listed<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

fn listed<T>(items: impl Iterator<Item = T>) -> Response<Listed<T>> {
    Response::new(tokio_stream::iter(items.map(Ok).collect::<Vec<_>>()))
}

fn short(what: &str, text: &str) -> Result<ShortString, Status> {
    ShortString::try_from(text)
        .map_err(|error| Status::invalid_argument(format!("{what} '{text}': {error}")))
}

fn kind(operator: bool) -> PolicyKind {
    if operator { PolicyKind::Operator } else { PolicyKind::User }
}

fn invalid(error: &impl ToString) -> Status {
    Status::invalid_argument(error.to_string())
}

/// A policy as an operator wrote it.
///
/// # Errors
/// INVALID_ARGUMENT, in RabbitMQ's words.
pub(crate) fn policy(policy: &wire::Policy) -> Result<PolicyRecord, Status> {
    let text = PolicyText {
        kind: kind(policy.operator),
        vhost: &vhost(&policy.vhost)?,
        name: &short("policy", &policy.name)?,
        pattern: &policy.pattern,
        apply_to: &policy.apply_to,
        priority: policy.priority,
    };
    text.parse(&policy.definition).map_err(|error| invalid(&error))
}

/// The full name of a policy.
///
/// # Errors
/// INVALID_ARGUMENT: a name is too long.
pub(crate) fn policy_name(request: &wire::PolicyRequest) -> Result<PolicyName, Status> {
    Ok(PolicyName {
        kind: kind(request.operator),
        vhost: vhost(&request.vhost)?,
        name: short("policy", &request.name)?,
    })
}

/// Definitions that come in parts.
///
/// # Errors
/// INVALID_ARGUMENT: they are too long, or no text.
pub(crate) async fn definitions_text(
    mut chunks: Streaming<wire::DefinitionsChunk>,
) -> Result<String, Status> {
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.message().await? {
        check(chunk.caller)?;
        if bytes.len() + chunk.json.len() > DEFINITIONS_BYTES_MAX {
            let text = format!("definitions must not exceed {DEFINITIONS_BYTES_MAX} bytes");
            return Err(Status::invalid_argument(text));
        }
        bytes.extend_from_slice(&chunk.json);
    }
    String::from_utf8(bytes).map_err(|_| invalid(&"definitions are not UTF-8"))
}

fn policy_message(policy: &PolicyRecord) -> wire::Policy {
    wire::Policy {
        operator: policy.kind == PolicyKind::Operator,
        vhost: policy.vhost.to_string(),
        name: policy.name.to_string(),
        pattern: policy.pattern.clone(),
        apply_to: policy.apply_to.name().to_owned(),
        definition: policy.definition.to_json().to_string(),
        priority: policy.priority,
    }
}

fn parameter_name(of: Option<&str>, component: &str, name: &str) -> Result<ParameterName, Status> {
    let name = short("parameter", name)?;
    Ok(match of {
        None => ParameterName::Global(name),
        Some(of) => ParameterName::Vhost {
            vhost: vhost(of)?,
            component: short("component", component)?,
            name,
        },
    })
}

fn parameter_message(parameter: ParameterRecord) -> wire::Parameter {
    let value = parameter.value;
    match parameter.name {
        ParameterName::Global(name) => {
            wire::Parameter { name: name.to_string(), value, ..wire::Parameter::default() }
        }
        ParameterName::Vhost { vhost, component, name } => wire::Parameter {
            vhost: Some(vhost.to_string()),
            component: component.to_string(),
            name: name.to_string(),
            value,
        },
    }
}

impl PolicyService {
    /// The service of one node, to be mounted at the rpc port.
    #[must_use]
    pub fn new(broker: Broker, facts: Arc<NodeFacts>) -> Self {
        Self { broker, facts }
    }

    async fn change_policy(&self, request: wire::SetPolicyRequest) -> Result<(), Status> {
        let policy = policy(&request.policy.unwrap_or_default())?;
        let set = self.broker.operator().set_policy(policy).await;
        set.map_err(|exception| refusal(&exception))
    }

    async fn remove_policy(&self, request: wire::PolicyRequest) -> Result<(), Status> {
        let name = PolicyName {
            kind: kind(request.operator),
            vhost: vhost(&request.vhost)?,
            name: short("policy", &request.name)?,
        };
        let cleared = self.broker.operator().clear_policy(name).await;
        cleared.map_err(|exception| refusal(&exception))
    }

    async fn change_parameter(&self, request: wire::SetParameterRequest) -> Result<(), Status> {
        let given = request.parameter.unwrap_or_default();
        let name = parameter_name(given.vhost.as_deref(), &given.component, &given.name)?;
        let record = ParameterRecord::parse(name, &given.value).map_err(|error| invalid(&error))?;
        let set = self.broker.operator().set_parameter(record).await;
        set.map_err(|exception| refusal(&exception))
    }

    async fn remove_parameter(&self, request: wire::ParameterRequest) -> Result<(), Status> {
        let name = parameter_name(request.vhost.as_deref(), &request.component, &request.name)?;
        let cleared = self.broker.operator().clear_parameter(name).await;
        cleared.map_err(|exception| refusal(&exception))
    }

    async fn import(&self, text: String) -> Result<wire::Imported, Status> {
        match self.broker.operator().import_definitions(text.into()).await {
            Ok(Imported { left_out, .. }) => Ok(wire::Imported { left_out }),
            Err(ImportError::Invalid(error)) => Err(invalid(&error)),
            Err(ImportError::Unavailable(text)) => Err(Status::unavailable(text)),
        }
    }
}

/// The verb that changes a policy, in the log.
fn policy_verb(what: &str, operator: bool) -> String {
    if operator { format!("{what}_operator_policy") } else { format!("{what}_policy") }
}

/// A runtime parameter in the log, without its value, which may be a secret.
fn shown_name(vhost: Option<&str>, component: &str, name: &str) -> String {
    match vhost {
        None => format!("global '{name}'"),
        Some(vhost) => within(vhost, &format!("{component}/{name}")),
    }
}

fn shown_parameter(parameter: &wire::Parameter) -> String {
    shown_name(parameter.vhost.as_deref(), &parameter.component, &parameter.name)
}

#[tonic::async_trait]
impl Policies for PolicyService {
    type ListPoliciesStream = Listed<wire::Policy>;
    type ListParametersStream = Listed<wire::Parameter>;
    type ExportDefinitionsStream = Listed<wire::DefinitionsChunk>;

    async fn set_policy(
        &self,
        request: Request<wire::SetPolicyRequest>,
    ) -> Result<Response<wire::Done>, Status> {
        let (operator, request) = opened(request)?;
        let object =
            request.policy.as_ref().map(|it| within(&it.vhost, &it.name)).unwrap_or_default();
        let verb = policy_verb("set", request.policy.as_ref().is_some_and(|it| it.operator));
        let result = self.change_policy(request).await;
        operator.log(&verb, &object, &result);
        result.map(|()| Response::new(wire::Done {}))
    }

    async fn clear_policy(
        &self,
        request: Request<wire::PolicyRequest>,
    ) -> Result<Response<wire::Done>, Status> {
        let (operator, request) = opened(request)?;
        let object = within(&request.vhost, &request.name);
        let verb = policy_verb("clear", request.operator);
        let result = self.remove_policy(request).await;
        operator.log(&verb, &object, &result);
        result.map(|()| Response::new(wire::Done {}))
    }

    async fn list_policies(
        &self,
        request: Request<wire::PolicyRequest>,
    ) -> Result<Response<Self::ListPoliciesStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let policies =
            self.broker.views().policies(kind(request.operator), &vhost(&request.vhost)?);
        let policies = policies.map_err(|exception| refusal(&exception))?;
        Ok(listed(policies.iter().map(policy_message)))
    }

    async fn set_parameter(
        &self,
        request: Request<wire::SetParameterRequest>,
    ) -> Result<Response<wire::Done>, Status> {
        let (operator, request) = opened(request)?;
        let object = request.parameter.as_ref().map(shown_parameter).unwrap_or_default();
        let result = self.change_parameter(request).await;
        operator.log("set_parameter", &object, &result);
        result.map(|()| Response::new(wire::Done {}))
    }

    async fn clear_parameter(
        &self,
        request: Request<wire::ParameterRequest>,
    ) -> Result<Response<wire::Done>, Status> {
        let (operator, request) = opened(request)?;
        let object = shown_name(request.vhost.as_deref(), &request.component, &request.name);
        let result = self.remove_parameter(request).await;
        operator.log("clear_parameter", &object, &result);
        result.map(|()| Response::new(wire::Done {}))
    }

    async fn list_parameters(
        &self,
        request: Request<wire::ParameterRequest>,
    ) -> Result<Response<Self::ListParametersStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let parameters = self.broker.views().parameters(request.vhost.as_deref());
        let parameters = parameters.map_err(|exception| refusal(&exception))?;
        Ok(listed(parameters.into_iter().map(parameter_message)))
    }

    async fn export_definitions(
        &self,
        request: Request<wire::DefinitionsRequest>,
    ) -> Result<Response<Self::ExportDefinitionsStream>, Status> {
        check(request.into_inner().caller)?;
        let exported = exported_definitions(&self.broker, &self.facts).await;
        let exported =
            exported.ok_or_else(|| Status::internal("definitions cannot be exported"))?;
        let json = Bytes::from(exported);
        let chunk = |place: usize| wire::DefinitionsChunk {
            caller: None,
            json: json.slice(place..json.len().min(place + CHUNK_BYTES)),
        };
        Ok(listed((0..json.len()).step_by(CHUNK_BYTES).map(chunk)))
    }

    async fn import_definitions(
        &self,
        request: Request<Streaming<wire::DefinitionsChunk>>,
    ) -> Result<Response<wire::Imported>, Status> {
        let operator = Operator::of(&request);
        let text = definitions_text(request.into_inner()).await?;
        let object = format!("{} bytes", text.len());
        let result = self.import(text).await;
        operator.log("import_definitions", &object, &result);
        result.map(Response::new)
    }
}
