//! Prometheus' text format, read strictly: what a scraper would refuse is refused here.

use std::collections::{BTreeMap, BTreeSet};

/// The metrics of one scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Type by family name, from the `# TYPE` lines.
    pub types: BTreeMap<String, String>,
    /// All samples, in the order of the text.
    pub samples: Vec<Sample>,
}

/// One line of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name, with `_bucket`, `_sum`, `_count` where it has them.
    pub name: String,
    /// Labels by name.
    pub labels: BTreeMap<String, String>,
    /// Value of the sample.
    pub value: f64,
}

impl Metrics {
    /// Reads a scrape.
    ///
    /// # Errors
    /// The first line that Prometheus would not take: malformed, without a type, or there twice.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut metrics = Self::default();
        let mut seen = BTreeSet::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (family, kind) = rest.split_once(' ').ok_or(line)?;
                let before = metrics.types.insert(family.to_owned(), kind.to_owned());
                refuse(before.is_some(), || format!("a second type: {line}"))?;
            } else if !line.starts_with('#') {
                let sample = Sample::parse(line).ok_or_else(|| format!("malformed: {line}"))?;
                let family = metrics.family(&sample.name);
                refuse(family.is_none(), || format!("no type: {line}"))?;
                let key = (sample.name.clone(), sample.labels.clone());
                refuse(!seen.insert(key), || format!("there twice: {line}"))?;
                metrics.samples.push(sample);
            }
        }
        Ok(metrics)
    }

    /// The sum of a name's samples over all labels; none where there are no samples.
    #[must_use]
    pub fn sum(&self, name: &str) -> Option<f64> {
        let values: Vec<f64> =
            self.samples.iter().filter(|s| s.name == name).map(|s| s.value).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// Everything that only grows: counters, and how often each histogram was added to; by name
    /// and labels, as Prometheus writes them.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, f64> {
        let kind = |name: &str| self.types.get(name).map(String::as_str);
        let counts = self.samples.iter().filter(|sample| {
            let histogram = sample.name.strip_suffix("_count").and_then(kind);
            kind(&sample.name) == Some("counter") || histogram == Some("histogram")
        });
        counts.map(|sample| (sample.key(), sample.value)).collect()
    }

    /// The families whose name begins with `prefix` and contains `word`.
    #[must_use]
    pub fn families(&self, prefix: &str, word: &str) -> Vec<&str> {
        self.types
            .keys()
            .filter(|name| name.starts_with(prefix) && name.contains(word))
            .map(String::as_str)
            .collect()
    }

    fn family<'a>(&self, sample: &'a str) -> Option<&'a str> {
        if self.types.contains_key(sample) {
            return Some(sample);
        }
        ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
            let family = sample.strip_suffix(suffix)?;
            let kind = self.types.get(family)?;
            (kind == "histogram" || kind == "summary").then_some(family)
        })
    }
}

impl Sample {
    /// Name and labels, as Prometheus writes them.
    #[must_use]
    pub fn key(&self) -> String {
        if self.labels.is_empty() {
            return self.name.clone();
        }
        let labels = self.labels.iter().map(|(name, value)| format!("{name}=\"{value}\""));
        format!("{}{{{}}}", self.name, labels.collect::<Vec<_>>().join(","))
    }

    fn parse(line: &str) -> Option<Self> {
        let (head, labels, value) = match line.split_once('{') {
            Some((head, rest)) => {
                let (labels, value) = split_labels(rest)?;
                (head, labels, value)
            }
            None => {
                let (head, value) = line.split_once(' ')?;
                (head, BTreeMap::new(), value)
            }
        };
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if head.is_empty() || !head.chars().all(good) {
            return None;
        }
        let value = value.split_whitespace().next()?;
        let value = match value {
            "+Inf" => f64::INFINITY,
            "-Inf" => f64::NEG_INFINITY,
            number => number.parse().ok()?,
        };
        Some(Self { name: head.to_owned(), labels, value })
    }
}

/// Labels up to the closing brace, and what follows it.
fn split_labels(text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(value) = rest.strip_prefix('}') {
            return Some((labels, value));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (value, after) = unquote(quoted)?;
        if labels.insert(name.to_owned(), value).is_some() {
            return None;
        }
        rest = after;
    }
}

/// A label's value up to its closing quote, and what follows.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                escaped @ ('\\' | '"') => value.push(escaped),
                _ => return None,
            },
            plain => value.push(plain),
        }
    }
    None
}

fn refuse(when: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    if when { Err(reason()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = "# HELP a_total things\n# TYPE a_total counter\n\
        a_total{q=\"x\\\"y\",v=\"/\"} 3\na_total{q=\"z\"} 4.5\n\
        # TYPE b_seconds histogram\nb_seconds_bucket{le=\"+Inf\"} 2\nb_seconds_sum 1e-3\n\
        b_seconds_count 2\n";

    #[test]
    fn a_scrape_is_read() {
        let metrics = Metrics::parse(SCRAPE).unwrap();
        assert_eq!(metrics.sum("a_total"), Some(7.5));
        assert_eq!(metrics.sum("b_seconds_sum"), Some(0.001));
        assert_eq!(metrics.sum("c"), None);
        assert_eq!(metrics.families("b_", "sec"), ["b_seconds"]);
        let counts: Vec<(String, f64)> = metrics.counts().into_iter().collect();
        let expected = [
            ("a_total{q=\"x\"y\",v=\"/\"}", 3.0),
            ("a_total{q=\"z\"}", 4.5),
            ("b_seconds_count", 2.0),
        ];
        assert_eq!(counts, expected.map(|(key, value)| (key.to_owned(), value)));
        let first = metrics.samples.first().unwrap();
        assert_eq!(first.labels.get("q").map(String::as_str), Some("x\"y"));
    }

    #[test]
    fn what_prometheus_refuses_is_refused() {
        for bad in [
            "a 1\n",
            "# TYPE a gauge\na 1\na 2\n",
            "# TYPE a gauge\na{x=\"1\" 1\n",
            "# TYPE a gauge\n# TYPE a gauge\n",
            "# TYPE a gauge\na one\n",
            "# TYPE a gauge\na_count 1\n",
        ] {
            assert!(Metrics::parse(bad).is_err(), "{bad}");
        }
    }
}
