//! Prometheus' text exposition format, version 0.0.4.

use quorate_broker::view::HistogramView;
use std::fmt::Write;

/// A page of metrics that is being written.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
}

pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// How a number is written.
type Unit = fn(u64) -> String;

impl Page {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// A value that can rise and fall.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// A value that only grows while the process runs.
    pub(super) fn counter(&mut self, name: &str, help: &str, labels: Labels<'_>, value: u64) {
        self.head(name, "counter", help);
        self.sample(name, labels, value);
    }

    /// Begins a family of samples.
    pub(super) fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// One sample of the family begun.
    pub(super) fn sample(&mut self, name: &str, labels: Labels<'_>, value: u64) {
        let labels = label_text(labels);
        self.line(format_args!("{name}{labels} {value}"));
    }

    /// One sample of the family begun, with a value that is written already.
    pub(super) fn sample_text(&mut self, name: &str, labels: Labels<'_>, value: &str) {
        let labels = label_text(labels);
        self.line(format_args!("{name}{labels} {value}"));
    }

    /// Durations in microseconds, written in seconds as is usual for Prometheus.
    pub(super) fn times(&mut self, name: &str, help: &str, view: &HistogramView) {
        self.histogram(name, help, &[], view, (seconds, seconds));
    }

    /// Writes a histogram of sizes in bytes.
    pub(super) fn sizes(&mut self, name: &str, help: &str, view: &HistogramView) {
        self.histogram(name, help, &[], view, (plain, plain));
    }

    /// Writes a histogram of sizes with labels, whose bounds are floating point numbers, as the Erlang
    /// client writes them: the dashboards ask for exactly these.
    pub(super) fn labelled_sizes(
        &mut self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
        view: &HistogramView,
    ) {
        self.histogram(name, help, labels, view, (float, plain));
    }

    /// Writes a histogram of durations in milliseconds in seconds.
    pub(super) fn milliseconds(&mut self, name: &str, help: &str, view: &HistogramView) {
        let unit: Unit = |ms| seconds(ms.saturating_mul(1_000));
        self.histogram(name, help, &[], view, (unit, unit));
    }

    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
        view: &HistogramView,
        (bound_text, sum_text): (Unit, Unit),
    ) {
        self.head(name, "histogram", help);
        let mut below = 0;
        for (bound, count) in view.bounds.iter().zip(&view.counts) {
            below += count;
            self.bucket(name, labels, &bound_text(*bound), below);
        }
        let all: u64 = view.counts.iter().sum();
        self.bucket(name, labels, "+Inf", all);
        self.sample_text(&format!("{name}_sum"), labels, &sum_text(view.sum));
        self.sample(&format!("{name}_count"), labels, all);
    }

    fn bucket(&mut self, name: &str, labels: Labels<'_>, bound: &str, below: u64) {
        let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
        self.sample(&format!("{name}_bucket"), &labels, below);
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }
}

fn plain(number: u64) -> String {
    number.to_string()
}

/// A whole number as Prometheus' own client writes floating point numbers.
fn float(number: u64) -> String {
    let exponent = number.checked_ilog10().unwrap_or_default();
    let power = 10u64.pow(exponent);
    if exponent < 6 || !number.is_multiple_of(power) {
        return format!("{number}.0");
    }
    format!("{}e+{exponent:02}", number / power)
}

/// Microseconds as a decimal number of seconds, without trailing zeros.
pub(super) fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn label_text(labels: Labels<'_>) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pairs: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn labels_are_escaped_and_histograms_cumulate() {
        let mut page = Page::default();
        page.head("a_info", "untyped", "An a");
        page.sample("a_info", &[("path", "C:\\x\n\"y\"")], 1);
        let view =
            HistogramView { bounds: vec![500, 1_000_000], counts: vec![2, 1, 4], sum: 12_500_000 };
        page.times("t_seconds", "Times", &view);
        page.sizes("s", "Sizes", &view);
        page.labelled_sizes("b", "Bytes", &[("protocol", "p")], &view);
        expect![[r##"
            # HELP a_info An a
            # TYPE a_info untyped
            a_info{path="C:\\x\n\"y\""} 1
            # HELP t_seconds Times
            # TYPE t_seconds histogram
            t_seconds_bucket{le="0.0005"} 2
            t_seconds_bucket{le="1"} 3
            t_seconds_bucket{le="+Inf"} 7
            t_seconds_sum 12.5
            t_seconds_count 7
            # HELP s Sizes
            # TYPE s histogram
            s_bucket{le="500"} 2
            s_bucket{le="1000000"} 3
            s_bucket{le="+Inf"} 7
            s_sum 12500000
            s_count 7
            # HELP b Bytes
            # TYPE b histogram
            b_bucket{protocol="p",le="500.0"} 2
            b_bucket{protocol="p",le="1e+06"} 3
            b_bucket{protocol="p",le="+Inf"} 7
            b_sum{protocol="p"} 12500000
            b_count{protocol="p"} 7
        "##]]
        .assert_eq(&page.into_text());
    }
}
