//! Which samples a request asks for, in RabbitMQ's parameters: `msg_rates_age` and `msg_rates_incr`
//! (seconds), and the same with `lengths`, `data_rates`, `node_stats`. Pure.

use crate::api::refusal::{Refusal, bad_request};
use crate::api::uri::Query;
use crate::rates::{ALL_SAMPLES_MAX, SAMPLES_MAX};
use crate::wire;

/// What a request asks of statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spans {
    /// `disable_stats=true`: none at all.
    pub(crate) is_off: bool,
    lengths: Option<wire::Span>,
    rates: Option<wire::Span>,
    data: Option<wire::Span>,
    node: Option<wire::Span>,
}

impl Spans {
    /// Reads the parameters of a request that was made at `now_ms`.
    ///
    /// # Errors
    /// 400 that names the parameter that is wrong.
    pub(crate) fn parse(query: &Query, now_ms: u64) -> Result<Self, Refusal> {
        Ok(Self {
            is_off: query.is_true("disable_stats"),
            lengths: span(query, "lengths_age", "lengths_incr", now_ms)?,
            rates: span(query, "msg_rates_age", "msg_rates_incr", now_ms)?,
            data: span(query, "data_rates_age", "data_rates_incr", now_ms)?,
            node: span(query, "node_stats_age", "node_stats_incr", now_ms)?,
        })
    }

    /// The request for the statistics of a kind of objects.
    pub(crate) fn request(&self, kind: wire::SampledKind) -> wire::StatisticsRequest {
        wire::StatisticsRequest {
            caller: wire::caller(),
            kind: kind.into(),
            vhost: None,
            name: None,
            lengths: self.lengths,
            rates: self.rates,
            data: self.data,
            node: self.node,
            queues: Vec::new(),
        }
    }

    /// The same without samples.
    pub(crate) fn without_samples(&self) -> Self {
        Self { is_off: self.is_off, ..Self::default() }
    }

    /// True if samples are asked for.
    pub(crate) fn has_samples(&self) -> bool {
        *self != self.without_samples()
    }

    /// The refusal of too many samples, which names the parameters that ask for them.
    pub(crate) fn too_many(&self) -> Refusal {
        let asked = [
            ("lengths_age and lengths_incr", self.lengths),
            ("msg_rates_age and msg_rates_incr", self.rates),
            ("data_rates_age and data_rates_incr", self.data),
            ("node_stats_age and node_stats_incr", self.node),
        ];
        let names: Vec<_> = asked.iter().filter(|(_, span)| span.is_some()).collect();
        let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        Refusal::BadRequest(format!(
            "{} ask for more than {ALL_SAMPLES_MAX} samples of the objects of this list: ask for \
             fewer samples, or for fewer objects",
            names.join(", ")
        ))
    }
}

/// As in RabbitMQ, samples are given only if both parameters are there.
fn span(query: &Query, age: &str, step: &str, now_ms: u64) -> Result<Option<wire::Span>, Refusal> {
    let seconds = |name: &str| match query.get(name) {
        None => Ok(None),
        Some(text) => match text.parse::<u64>().ok().and_then(|number| number.checked_mul(1_000)) {
            Some(ms) => Ok(Some(ms)),
            None => bad_request(format!("{name} is not a number of seconds: {text}")),
        },
    };
    let (Some(age_ms), Some(step_ms)) = (seconds(age)?, seconds(step)?) else { return Ok(None) };
    if step_ms == 0 {
        return bad_request(format!("{step} must be at least 1"));
    }
    if age_ms / step_ms >= SAMPLES_MAX {
        return bad_request(format!("{age} and {step} ask for more than {SAMPLES_MAX} samples"));
    }
    Ok(Some(wire::Span { end_ms: now_ms / step_ms * step_ms, age_ms, step_ms }))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn samples_are_asked_for_with_age_and_step() {
        let parse = |query: &str| Spans::parse(&Query::parse(query).unwrap(), 12_345_678);
        assert_eq!(parse("").unwrap(), Spans::default());
        let spans = parse("msg_rates_age=60&msg_rates_incr=5&lengths_age=60").unwrap();
        let request = spans.request(wire::SampledKind::Queues);
        let span = wire::Span { end_ms: 12_345_000, age_ms: 60_000, step_ms: 5_000 };
        assert_eq!((request.rates, request.lengths), (Some(span), None));
        assert!(parse("disable_stats=true").unwrap().is_off);
        assert!(spans.has_samples() && !spans.without_samples().has_samples());
        let Refusal::BadRequest(text) = spans.too_many() else { unreachable!() };
        assert!(text.starts_with("msg_rates_age and msg_rates_incr ask for more"), "{text}");
        for wrong in [
            "lengths_age=x&lengths_incr=5",
            "lengths_age=60&lengths_incr=0",
            "data_rates_age=5000&data_rates_incr=1",
            "node_stats_age=99999999999999999999&node_stats_incr=1",
        ] {
            assert!(matches!(parse(wrong), Err(Refusal::BadRequest(_))), "{wrong}");
        }
    }
}
