//! The result of a run, as JSON and as text.

use super::shared::Latencies;
use serde::Serialize;

/// Percentiles of a latency, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) count: u64,
    pub(crate) min: u64,
    pub(crate) p50: u64,
    pub(crate) p75: u64,
    pub(crate) p95: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

impl Percentiles {
    /// `None` if nothing was recorded.
    pub(crate) fn of(latencies: &Latencies) -> Option<Self> {
        if latencies.is_empty() {
            return None;
        }
        let at = |quantile| latencies.value_at_quantile(quantile);
        Some(Self {
            count: latencies.len(),
            min: latencies.min(),
            p50: at(0.5),
            p75: at(0.75),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: latencies.max(),
        })
    }

    fn words(&self) -> String {
        format!(
            "min {} median {} 75th {} 95th {} 99th {} 99.9th {} max {} us",
            self.min, self.p50, self.p75, self.p95, self.p99, self.p999, self.max
        )
    }
}

/// The findings of `--verify`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) published: u64,
    pub(crate) confirmed: u64,
    /// Neither confirmed nor refused within the time of `--drain`.
    pub(crate) unconfirmed: u64,
    /// Refused with basic.nack.
    pub(crate) refused: u64,
    /// Confirmed, but never arrived.
    pub(crate) lost: u64,
    /// Arrived again without the redelivered mark.
    pub(crate) doubled: u64,
    /// Arrived again with the redelivered mark.
    pub(crate) redelivered: u64,
    /// Arrived after a later message of the same publisher and queue, without the redelivered mark.
    pub(crate) reordered: u64,
    /// Some of the lost and doubled messages, as PUBLISHER:NUMBER.
    pub(crate) examples: Vec<String>,
}

impl Verdict {
    /// True if no guarantee was broken. Unconfirmed and refused messages have no guarantee.
    pub(crate) fn is_good(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.reordered == 0
    }
}

/// The result of the whole run. Rates are those of the measured time, after the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) seconds: f64,
    pub(crate) published: u64,
    pub(crate) published_per_s: f64,
    pub(crate) confirmed_per_s: f64,
    pub(crate) received_per_s: f64,
    pub(crate) refused: u64,
    pub(crate) returned: u64,
    pub(crate) received: u64,
    /// From the write of a publish to its confirm, microseconds.
    pub(crate) confirm_us: Option<Percentiles>,
    /// From the write of a publish to its delivery, microseconds.
    pub(crate) end_to_end_us: Option<Percentiles>,
    pub(crate) broker_processes: usize,
    /// CPU time of all brokers together for each message, microseconds.
    pub(crate) broker_cpu_us_per_message: Option<f64>,
    /// Largest resident memory of any broker, sampled every second.
    pub(crate) broker_resident_bytes_max: u64,
    pub(crate) perf_cpu_us_per_message: f64,
    pub(crate) verify: Option<Verdict>,
    pub(crate) errors: Vec<String>,
}

impl Summary {
    /// True if there was no error and `--verify` found no broken guarantee.
    pub(crate) fn is_good(&self) -> bool {
        self.errors.is_empty() && self.verify.as_ref().is_none_or(Verdict::is_good)
    }

    /// The summary as text for people.
    pub(crate) fn words(&self) -> String {
        let mut lines = vec![format!(
            "measured {:.2} s: published {:.0}/s, confirmed {:.0}/s, received {:.0}/s; in all published {}, received {}, refused {}, returned {}",
            self.seconds,
            self.published_per_s,
            self.confirmed_per_s,
            self.received_per_s,
            self.published,
            self.received,
            self.refused,
            self.returned
        )];
        if let Some(confirm) = &self.confirm_us {
            lines.push(format!("confirm latency    {}", confirm.words()));
        }
        if let Some(end_to_end) = &self.end_to_end_us {
            lines.push(format!("end-to-end latency {}", end_to_end.words()));
        }
        if let Some(cpu_us) = self.broker_cpu_us_per_message {
            lines.push(format!(
                "broker CPU {cpu_us:.1} us per message in {} processes, the largest with {} MiB",
                self.broker_processes,
                self.broker_resident_bytes_max >> 20
            ));
        }
        lines.push(format!("perf CPU {:.2} us per message", self.perf_cpu_us_per_message));
        if let Some(verdict) = &self.verify {
            lines.push(verdict.words());
        }
        lines.extend(self.errors.iter().map(|error| format!("error: {error}")));
        lines.into_iter().map(|line| line + "\n").collect()
    }
}

impl Verdict {
    fn words(&self) -> String {
        let mut line = format!(
            "verify {}: published {}, confirmed {}, unconfirmed {}, refused {}, lost {}, doubled {}, redelivered {}, reordered {}",
            if self.is_good() { "good" } else { "FAILED" },
            self.published,
            self.confirmed,
            self.unconfirmed,
            self.refused,
            self.lost,
            self.doubled,
            self.redelivered,
            self.reordered
        );
        if !self.examples.is_empty() {
            line.push_str(&format!(" (publisher:number {})", self.examples.join(", ")));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::perf::shared::{latencies, record};
    use expect_test::expect;

    #[test]
    fn percentiles_are_of_what_was_recorded() {
        let mut recorded = latencies();
        assert_eq!(Percentiles::of(&recorded), None);
        (1..=1000).for_each(|us| record(&mut recorded, 0, us * 1000));
        let percentiles = Percentiles::of(&recorded);
        let expected = Percentiles {
            count: 1000,
            min: 1,
            p50: 500,
            p75: 750,
            p95: 950,
            p99: 990,
            p999: 999,
            max: 1000,
        };
        assert_eq!(percentiles, Some(expected));
    }

    #[test]
    fn the_summary_reads_well_and_a_lost_message_fails_it() {
        let latency =
            Percentiles { count: 9, min: 1, p50: 2, p75: 3, p95: 4, p99: 5, p999: 6, max: 7 };
        let verdict = Verdict {
            published: 100,
            confirmed: 98,
            unconfirmed: 1,
            refused: 1,
            lost: 1,
            examples: vec!["1:17".to_owned()],
            ..Verdict::default()
        };
        let summary = Summary {
            seconds: 2.0,
            published: 100,
            published_per_s: 50.0,
            confirmed_per_s: 49.0,
            received_per_s: 48.5,
            confirm_us: Some(latency.clone()),
            end_to_end_us: Some(latency),
            broker_processes: 3,
            broker_cpu_us_per_message: Some(28.14),
            broker_resident_bytes_max: 200 << 20,
            perf_cpu_us_per_message: 2.5,
            verify: Some(verdict),
            ..Summary::default()
        };
        assert!(!summary.is_good());
        expect![[r#"
            measured 2.00 s: published 50/s, confirmed 49/s, received 48/s; in all published 100, received 0, refused 0, returned 0
            confirm latency    min 1 median 2 75th 3 95th 4 99th 5 99.9th 6 max 7 us
            end-to-end latency min 1 median 2 75th 3 95th 4 99th 5 99.9th 6 max 7 us
            broker CPU 28.1 us per message in 3 processes, the largest with 200 MiB
            perf CPU 2.50 us per message
            verify FAILED: published 100, confirmed 98, unconfirmed 1, refused 1, lost 1, doubled 0, redelivered 0, reordered 0 (publisher:number 1:17)
        "#]].assert_eq(&summary.words());
        let good = Summary { verify: Some(Verdict::default()), ..Summary::default() };
        assert!(good.is_good());
        let failed = Summary { errors: vec!["x".to_owned()], ..Summary::default() };
        assert!(!failed.is_good());
    }
}
