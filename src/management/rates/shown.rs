//! Statistics as the HTTP API shows them: `message_stats`, and fields with `_details`. Those of several
//! nodes are added. Pure.

use crate::rates::fields::{Asked, Field};
use crate::wire;
use serde_json::{Map, Value, json};

/// Adds the statistics of another node to those of the same object.
pub(crate) fn add(sum: &mut wire::Statistic, other: &wire::Statistic) {
    grow(&mut sum.totals, other.totals.len());
    grow(&mut sum.rates, other.rates.len());
    for (total, more) in sum.totals.iter_mut().zip(&other.totals) {
        *total = total.saturating_add(*more);
    }
    for (rate, more) in sum.rates.iter_mut().zip(&other.rates) {
        *rate += more;
    }
    for more in &other.samples {
        let same = |it: &&mut wire::Samples| {
            (it.field, it.end_ms, it.step_ms) == (more.field, more.end_ms, more.step_ms)
        };
        match sum.samples.iter_mut().find(same) {
            None => sum.samples.push(more.clone()),
            Some(samples) => {
                grow(&mut samples.values, more.values.len());
                for (value, more) in samples.values.iter_mut().zip(&more.values) {
                    *value = value.saturating_add(*more);
                }
            }
        }
    }
}

fn grow<T: Clone + Default>(values: &mut Vec<T>, len: usize) {
    if values.len() < len {
        values.resize(len, T::default());
    }
}

/// Inserts the statistics of an object into what is shown of it. Without any, what can be counted at
/// hand has the rate 0.
pub(crate) fn insert(shown: &mut Value, fields: &[Field], statistic: Option<&wire::Statistic>) {
    let Some(object) = shown.as_object_mut() else { return };
    let mut messages = Map::new();
    for (at, field) in fields.iter().enumerate() {
        let details = details(at, statistic);
        match (field.asked, statistic) {
            (Asked::Rates, Some(statistic)) => {
                messages.insert(field.name.to_owned(), total(statistic, at).into());
                messages.insert(format!("{}_details", field.name), details);
            }
            (Asked::Rates, None) => {}
            (Asked::Data, Some(statistic)) => {
                // What is known of now stays.
                object.entry(field.name).or_insert_with(|| total(statistic, at).into());
                object.insert(format!("{}_details", field.name), details);
            }
            (Asked::Lengths | Asked::Data | Asked::Node, _) => {
                object.insert(format!("{}_details", field.name), details);
            }
        }
    }
    if !messages.is_empty() {
        object.insert("message_stats".to_owned(), Value::Object(messages));
    }
}

/// The value at a path of what [`insert`] inserts. A list of ten thousand objects is sorted by it, so that
/// one number is not taken from a whole object.
pub(crate) fn at(
    fields: &[Field],
    statistic: Option<&wire::Statistic>,
    path: &[&str],
) -> Option<Value> {
    let place = |name: &str, asked: &[Asked]| {
        fields.iter().position(|field| field.name == name && asked.contains(&field.asked))
    };
    let of_details = |details: &str, asked| place(details.strip_suffix("_details")?, asked);
    let rate = |at: usize| {
        let rates = statistic.map(|it| &it.rates);
        Some(rates.and_then(|it| it.get(at)).copied().unwrap_or_default().into())
    };
    let others = [Asked::Lengths, Asked::Data, Asked::Node];
    let is_inserted = |name: &str| {
        let is_total = place(name, &[Asked::Data]).is_some();
        name == "message_stats" || name.ends_with("_details") || is_total
    };
    match path {
        ["message_stats", details, "rate"] => {
            let at = of_details(details, &[Asked::Rates])?;
            statistic.and_then(|_| rate(at))
        }
        ["message_stats", name] if !name.ends_with("_details") => {
            let at = place(name, &[Asked::Rates])?;
            Some(total(statistic?, at).into())
        }
        [details, "rate"] => rate(of_details(details, &others)?),
        [name, ..] if !is_inserted(name) => None,
        _ => {
            let mut shown = Value::Object(Map::new());
            insert(&mut shown, fields, statistic);
            path.iter().try_fold(&shown, |value, name| value.get(name)).cloned()
        }
    }
}

/// The totals of fields with their details, such as the rates of churn.
pub(crate) fn with_totals(
    fields: &[Field],
    names: &[&str],
    statistic: &wire::Statistic,
) -> Map<String, Value> {
    let mut shown = Map::new();
    let places = fields.iter().enumerate().filter(|(_, field)| names.contains(&field.name));
    for (at, field) in places {
        shown.insert(field.name.to_owned(), total(statistic, at).into());
        shown.insert(format!("{}_details", field.name), details(at, Some(statistic)));
    }
    shown
}

fn total(statistic: &wire::Statistic, at: usize) -> u64 {
    statistic.totals.get(at).copied().unwrap_or_default()
}

/// The rate of a field, with its samples if they were asked for.
fn details(at: usize, statistic: Option<&wire::Statistic>) -> Value {
    let rate = statistic.and_then(|it| it.rates.get(at)).copied().unwrap_or_default();
    let mut details = json!({ "rate": rate });
    let mut samples = statistic.into_iter().flat_map(|it| &it.samples);
    let field = samples.find(|samples| usize::try_from(samples.field) == Ok(at));
    if let (Some(samples), Some(details)) = (field, details.as_object_mut()) {
        insert_samples(details, samples);
    }
    details
}

#[expect(clippy::cast_precision_loss, reason = "means for people")]
fn insert_samples(details: &mut Map<String, Value>, samples: &wire::Samples) {
    let times = (0u64..).map(|back| samples.end_ms.saturating_sub(back * samples.step_ms));
    let pairs = samples.values.iter().zip(times);
    let shown = pairs.map(|(sample, time)| json!({ "sample": sample, "timestamp": time }));
    details.insert("samples".to_owned(), shown.collect());
    let (Some(newest), Some(oldest)) = (samples.values.first(), samples.values.last()) else {
        return;
    };
    let count = samples.values.len() as u64;
    let sum: u128 = samples.values.iter().map(|value| u128::from(*value)).sum();
    let span_s = (count - 1) as f64 * samples.step_ms as f64 / 1_000.0;
    let rise = *newest as f64 - *oldest as f64;
    details.insert("avg_rate".to_owned(), (if span_s > 0.0 { rise / span_s } else { 0.0 }).into());
    details.insert("avg".to_owned(), (sum as f64 / count as f64).into());
}
