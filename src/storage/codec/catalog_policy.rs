//! Policies and runtime parameters, in commands and records.

use super::{
    DecodeError,
    cursor::{Cursor, put_bool, put_bytes, put_len, put_short, put_signed},
};
use bytes::{BufMut, BytesMut};
use quorate_catalog::{
    ApplyTo, ParameterName, ParameterRecord, PolicyDefinition, PolicyKey, PolicyKind, PolicyName,
    PolicyRecord, PolicyValue,
};

pub(crate) fn put_policy_name(name: &PolicyName, out: &mut BytesMut) {
    put_bool(out, name.kind == PolicyKind::Operator);
    put_short(out, &name.vhost);
    put_short(out, &name.name);
}

pub(crate) fn policy_name(cursor: &mut Cursor<'_>) -> Result<PolicyName, DecodeError> {
    Ok(PolicyName {
        kind: if cursor.bool()? { PolicyKind::Operator } else { PolicyKind::User },
        vhost: cursor.short()?,
        name: cursor.short()?,
    })
}

pub(crate) fn put_policy(policy: &PolicyRecord, out: &mut BytesMut) {
    put_policy_name(&policy.full_name(), out);
    put_bytes(out, policy.pattern.as_bytes());
    put_bytes(out, policy.apply_to.name().as_bytes());
    put_signed(out, policy.priority);
    put_len(out, policy.definition.0.len());
    for (key, value) in &policy.definition.0 {
        put_bytes(out, key.name().as_bytes());
        match value {
            PolicyValue::Integer(value) => {
                out.put_u8(0);
                put_signed(out, *value);
            }
            PolicyValue::Text(text) => {
                out.put_u8(1);
                put_short(out, text);
            }
        }
    }
}

pub(crate) fn policy(cursor: &mut Cursor<'_>) -> Result<PolicyRecord, DecodeError> {
    let PolicyName { kind, vhost, name } = policy_name(cursor)?;
    Ok(PolicyRecord {
        kind,
        vhost,
        name,
        pattern: cursor.string()?,
        apply_to: ApplyTo::parse(&cursor.string()?).ok_or(DecodeError::Invalid("apply-to"))?,
        priority: cursor.signed()?,
        definition: PolicyDefinition(cursor.list(setting)?.into_iter().collect()),
    })
}

fn setting(cursor: &mut Cursor<'_>) -> Result<(PolicyKey, PolicyValue), DecodeError> {
    let key = PolicyKey::parse(&cursor.string()?).ok_or(DecodeError::Invalid("policy key"))?;
    let value = match cursor.u8()? {
        0 => PolicyValue::Integer(cursor.signed()?),
        1 => PolicyValue::Text(cursor.short()?),
        _ => return Err(DecodeError::Invalid("policy value")),
    };
    Ok((key, value))
}

pub(crate) fn put_parameter_name(name: &ParameterName, out: &mut BytesMut) {
    match name {
        ParameterName::Global(name) => {
            out.put_u8(0);
            put_short(out, name);
        }
        ParameterName::Vhost { vhost, component, name } => {
            out.put_u8(1);
            [vhost, component, name].into_iter().for_each(|part| put_short(out, part));
        }
    }
}

pub(crate) fn parameter_name(cursor: &mut Cursor<'_>) -> Result<ParameterName, DecodeError> {
    Ok(match cursor.u8()? {
        0 => ParameterName::Global(cursor.short()?),
        1 => ParameterName::Vhost {
            vhost: cursor.short()?,
            component: cursor.short()?,
            name: cursor.short()?,
        },
        _ => return Err(DecodeError::Invalid("scope of a parameter")),
    })
}

pub(crate) fn put_parameter(parameter: &ParameterRecord, out: &mut BytesMut) {
    put_parameter_name(&parameter.name, out);
    put_bytes(out, parameter.value.as_bytes());
}

pub(crate) fn parameter(cursor: &mut Cursor<'_>) -> Result<ParameterRecord, DecodeError> {
    Ok(ParameterRecord { name: parameter_name(cursor)?, value: cursor.string()? })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use crate::codec::catalog::{
        decode_command, decode_key, decode_record, encode_command, encode_key, encode_record,
    };
    use quorate_catalog::{
        CatalogCommand, CatalogKey, CatalogRecord, ParameterName, ParameterRecord, PolicyKind,
        PolicyText,
    };
    use quorate_types::ShortString;

    #[test]
    fn policies_and_parameters_are_read_as_they_were_written() {
        let short = ShortString::from_static;
        let (vhost, name) = (short("/"), short("p"));
        let text = PolicyText {
            kind: PolicyKind::Operator,
            vhost: &vhost,
            name: &name,
            pattern: "^é",
            apply_to: "quorum_queues",
            priority: -3,
        };
        let policy = text.parse(r#"{"delivery-limit":-1,"overflow":"drop-head"}"#).unwrap();
        let of_vhost =
            ParameterName::Vhost { vhost: vhost.clone(), component: short("c"), name: short("n") };
        let names = [ParameterName::Global(short("g")), of_vhost];
        let parameters = names.map(|name| ParameterRecord { name, value: "[1]".to_owned() });
        let mut commands = vec![
            CatalogCommand::SetPolicy(policy.clone()),
            CatalogCommand::ClearPolicy(policy.full_name()),
        ];
        let mut records =
            vec![(CatalogKey::Policy(policy.full_name()), CatalogRecord::Policy(policy))];
        for parameter in parameters {
            commands.push(CatalogCommand::SetParameter(parameter.clone()));
            commands.push(CatalogCommand::ClearParameter(parameter.name.clone()));
            let key = CatalogKey::Parameter(parameter.name.clone());
            records.push((key, CatalogRecord::Parameter(parameter)));
        }
        for command in commands {
            assert_eq!(decode_command(&encode_command(&command)).unwrap(), command);
        }
        for (key, record) in records {
            assert_eq!(decode_key(&encode_key(&key)).unwrap(), key);
            assert_eq!(decode_record(&encode_record(&record)).unwrap(), record);
        }
    }
}
