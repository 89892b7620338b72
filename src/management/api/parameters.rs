//! Runtime parameters: `/api/parameters`, `/api/global-parameters` and below.

use crate::api::call::{Answer, Api, Call};
use crate::api::refusal::{Refusal, not_authorised};
use crate::api::route::Method;
use quorate_catalog::{ParameterName, ParameterRecord};

/// How lists of parameters are sorted.
const ORDER: &[&str] = &["component", "vhost", "name"];

/// The parameters of virtual hosts, of all components or of one.
pub(crate) fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let (vhosts, broker) = (call.vhosts(api)?, api.broker.clone());
    let wanted = call.name("component").map(str::to_owned);
    Ok(Answer::list(ORDER, move || {
        let is_wanted = |parameter: &ParameterRecord| match &parameter.name {
            ParameterName::Vhost { component, .. } => {
                wanted.as_ref().is_none_or(|wanted| component.as_str() == wanted)
            }
            ParameterName::Global(_) => false,
        };
        // A virtual host may be deleted meanwhile: then it has none.
        let views = broker.views();
        let of_vhosts = vhosts
            .iter()
            .flat_map(|vhost| views.parameters(Some(vhost.as_str())).unwrap_or_default());
        of_vhosts.filter(is_wanted).map(|parameter| parameter.to_json()).collect()
    }))
}

/// The global parameters.
pub(crate) fn list_global(api: &Api) -> Result<Answer, Refusal> {
    let parameters = api.broker.views().parameters(None)?;
    Ok(Answer::list(&["name"], move || parameters.iter().map(ParameterRecord::to_json).collect()))
}

/// One parameter of a virtual host, or a global one: reads, sets or clears it.
pub(crate) async fn one(api: &Api, call: &Call, global: bool) -> Result<Answer, Refusal> {
    let (name, of) = match global {
        true => (ParameterName::Global(call.new_name("name")?), None),
        false => {
            let vhost = call.vhost(api)?;
            let component = call.new_name("component")?;
            let of = vhost.to_string();
            (ParameterName::Vhost { vhost, component, name: call.new_name("name")? }, Some(of))
        }
    };
    if call.method != Method::Get && name.is_of_administrators() && !call.caller.is_administrator()
    {
        return Err(not_authorised());
    }
    let parameters = api.broker.views().parameters(of.as_deref())?;
    let there = parameters.into_iter().find(|parameter| parameter.name == name);
    let operator = api.broker.operator();
    match call.method {
        Method::Get => Ok(Answer::object(there.ok_or(Refusal::NoObject)?.to_json())),
        Method::Put | Method::Post => {
            let value = call.fields()?.required("value")?.to_string();
            let record = ParameterRecord::parse(name, &value)
                .map_err(|error| Refusal::BadRequest(error.to_string()))?;
            operator.set_parameter(record).await?;
            Ok(Answer::put(there.is_none()))
        }
        Method::Delete => {
            there.ok_or(Refusal::NoObject)?;
            operator.clear_parameter(name).await?;
            Ok(Answer::done())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::ShortString;
    use serde_json::json;

    #[test]
    fn a_parameters_value_is_json() {
        let name = ShortString::from_static;
        let global = ParameterRecord {
            name: ParameterName::Global(name("n")),
            value: r#"{"a":[1]}"#.to_owned(),
        };
        assert_eq!(global.to_json(), json!({ "name": "n", "value": { "a": [1] } }));
        let of_vhost = ParameterRecord {
            name: ParameterName::Vhost { vhost: name("/"), component: name("c"), name: name("n") },
            value: "5".to_owned(),
        };
        let expected = json!({ "vhost": "/", "component": "c", "name": "n", "value": 5 });
        assert_eq!(of_vhost.to_json(), expected);
    }
}
