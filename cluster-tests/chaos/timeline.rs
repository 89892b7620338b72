//! The timeline of a report: throughput, confirm latency and leader changes each second, and the faults below
//! them on the same axis.

use super::injector::Injected;
use super::run::{Outcome, Sample};
use crate::history::{Answer, Log};
use std::fmt::Write as _;
use std::time::Duration;

/// Width of the plots and height of each, in pixels, and the height of a row of a fault.
const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 110.0;
const ROW: f64 = 16.0;
/// Free space above the highest point of a plot, in pixels.
const MARGIN: f64 = 16.0;

/// A curve: its colour, its name, and a value for each sample.
struct Curve {
    colour: &'static str,
    name: &'static str,
    values: Vec<f64>,
}

/// The timeline of a run, as HTML.
#[must_use]
pub fn timeline(outcome: &Outcome) -> String {
    let samples = &outcome.samples;
    let end = samples.last().map_or(1.0, |sample| sample.at.as_secs_f64()).max(1.0);
    let x = |at: Duration| at.as_secs_f64() / end * WIDTH;
    let of = |value: &dyn Fn(&Sample) -> u64| samples.iter().map(|s| value(s) as f64).collect();
    let [median, p99] = latencies(&outcome.log, outcome.begun, samples);
    let curve = |colour, name, values| Curve { colour, name, values };
    let plots = [
        vec![
            curve("#06c", "confirms a second", of(&|sample| sample.confirms)),
            curve("#c60", "deliveries a second", of(&|sample| sample.deliveries)),
        ],
        vec![
            curve("#06c", "confirm latency: median, ms", median),
            curve("#a0a", "99th percentile, ms", p99),
        ],
        vec![curve("#080", "new terms of Raft groups (leader changes)", of(&|s| s.new_terms))],
    ];
    let plots_height = HEIGHT * plots.len() as f64;
    let height = plots_height + ROW * (outcome.injected.len() as f64 + 1.0);
    let mut svg = format!("<h2>Timeline</h2><svg width='{WIDTH}' height='{height}'>");
    for (place, curves) in plots.iter().enumerate() {
        plot(&mut svg, HEIGHT * place as f64, curves, &|sample| x(samples[sample].at));
    }
    for (row, one) in outcome.injected.iter().enumerate() {
        let top = plots_height + ROW * row as f64 + 4.0;
        fault(&mut svg, (x(one.began), x(one.ended)), top, plots_height, one);
    }
    svg + "</svg>"
}

/// Curves with one scale, and their names above them.
fn plot(svg: &mut String, top: f64, curves: &[Curve], x: &dyn Fn(usize) -> f64) {
    let most = curves.iter().flat_map(|curve| &curve.values).copied().fold(1.0, f64::max);
    let y = |value: f64| top + HEIGHT - value / most * (HEIGHT - MARGIN);
    let mut at = 4.0;
    // Writing to a string does not fail.
    for Curve { colour, name, values } in curves {
        let points: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(place, value)| format!("{:.1},{:.1}", x(place), y(*value)))
            .collect();
        let _ = write!(
            svg,
            "<polyline fill=none stroke='{colour}' points='{}'/>\
             <text x='{at}' y='{:.1}' fill='{colour}'>{name}</text>",
            points.join(" "),
            top + 11.0,
        );
        at += 230.0;
    }
    let _ = write!(
        svg,
        "<text x='{:.1}' y='{:.1}' text-anchor=end>at most {most:.0}</text>\
         <line x1=0 x2='{WIDTH}' y1='{top}' y2='{top}' stroke='#ddd'/>",
        WIDTH - 4.0,
        top + 11.0,
    );
}

/// A fault's row, and its shade over the plots.
fn fault(svg: &mut String, (from, to): (f64, f64), top: f64, plots_height: f64, one: &Injected) {
    let is_left = to < WIDTH * 0.8;
    let width = (to - from).max(2.0);
    // Writing to a string does not fail.
    let _ = write!(
        svg,
        "<rect x='{from:.1}' y='{top:.1}' width='{width:.1}' height='{:.1}' fill='#d88'/>\
         <rect x='{from:.1}' y='0' width='{width:.1}' height='{plots_height}' fill='#d88' \
         opacity='0.15'/><text x='{:.1}' y='{:.1}' text-anchor='{}'>{} {:?}</text>",
        ROW - 4.0,
        if is_left { to + 4.0 } else { from - 4.0 },
        top + 10.0,
        if is_left { "start" } else { "end" },
        one.event.counts_as,
        one.nodes,
    );
}

/// Median and 99th percentile, in milliseconds, of the time from a publish to its confirm, for the confirms
/// of each sample's second; 0 without confirms.
fn latencies(log: &Log, begun: Duration, samples: &[Sample]) -> [Vec<f64>; 2] {
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); samples.len()];
    for published in log.published.values().filter(|one| one.answer == Answer::Confirmed) {
        let Some(answered) = published.answered_at else { continue };
        let at = answered.saturating_sub(begun);
        let second = samples.partition_point(|sample| sample.at < at);
        if let Some(second) = seconds.get_mut(second) {
            second.push(answered.saturating_sub(published.at).as_secs_f64() * 1e3);
        }
    }
    seconds.iter_mut().for_each(|second| second.sort_unstable_by(f64::total_cmp));
    let percentile = |part: usize| {
        let at = move |second: &Vec<f64>| second.get(second.len() * part / 100).copied();
        seconds.iter().map(|second| at(second).unwrap_or_default()).collect()
    };
    [percentile(50), percentile(99)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{History, Number};

    #[test]
    fn latencies_belong_to_the_second_of_the_confirm() {
        let history = History::default();
        let number = Number { producer: 1, seq: 1 };
        history.publishing(number, "q", 0, Duration::ZERO);
        history.answered(number, Answer::Confirmed);
        let sample = |at_s| Sample {
            at: Duration::from_secs(at_s),
            confirms: 0,
            deliveries: 0,
            new_terms: 0,
        };
        let samples = [sample(0), sample(1), sample(2)];
        let [median, p99] = latencies(&history.snapshot(), Duration::ZERO, &samples);
        assert!(median[1] > 0.0 && median[1] == p99[1], "{median:?} {p99:?}");
        assert_eq!((median[0], median[2]), (0.0, 0.0));
    }
}
