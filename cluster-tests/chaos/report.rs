//! What is left of a run: one HTML page for people, the history as lines of JSON for programs.

use super::gaps::Gap;
use super::injector::{Effect, Injected};
use super::life::life;
use super::run::Outcome;
use super::timeline::timeline;
use crate::harness::links::Wiring;
use crate::history::Log;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Violations shown of a run.
const SHOWN: usize = 50;

const STYLE: &str = "body{font:14px sans-serif;margin:2em;max-width:1100px;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:3px 8px;text-align:left}\
td.n{text-align:right}.good{color:#070}.bad{color:#a00}pre{white-space:pre-wrap;background:#f6f6f6;padding:8px}\
svg{background:#fafafa;border:1px solid #ddd}text{font:11px sans-serif}";

/// The folder of a run's report, unless another one is asked for.
#[must_use]
pub fn folder(seed: u64) -> PathBuf {
    std::env::temp_dir().join(format!("quorate-chaos-{seed}"))
}

/// Writes `report.html`, `history.jsonl` and `faults.json` into a folder.
///
/// # Errors
/// A file cannot be written.
pub fn write(outcome: &Outcome, folder: &Path) -> std::io::Result<()> {
    std::fs::write(folder.join("report.html"), page(outcome))?;
    std::fs::write(folder.join("faults.json"), serde_json::to_vec_pretty(&outcome.injected)?)?;
    history(&outcome.log, &folder.join("history.jsonl"))
}

/// One line for each publish, by producer and number, then one for each delivery, in their order.
fn history(log: &Log, path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    let ms = |at: Duration| u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
    for (number, published) in &log.published {
        let line = json!({
            "event": "published", "producer": number.producer, "seq": number.seq,
            "queue": published.queue, "at_ms": ms(published.at),
            "answer": format!("{:?}", published.answer),
            "answered_ms": published.answered_at.map(ms),
        });
        writeln!(file, "{line}")?;
    }
    for delivered in &log.delivered {
        let line = json!({
            "event": "delivered", "producer": delivered.number.producer, "seq": delivered.number.seq,
            "queue": delivered.queue, "consumer": delivered.consumer, "at_ms": ms(delivered.at),
            "redelivered": delivered.redelivered, "fate": format!("{:?}", delivered.fate),
            "settled_ms": delivered.settled_at.map(ms),
        });
        writeln!(file, "{line}")?;
    }
    file.flush()
}

/// The report of a run, as an HTML page.
#[must_use]
pub fn page(outcome: &Outcome) -> String {
    let verdict = if outcome.is_good() {
        "<p class=good>Nothing was lost, doubled or invented, and every fault took effect.</p>"
    } else {
        "<p class=bad>The run found violations, or a fault never took effect.</p>"
    };
    let schedule = &outcome.schedule;
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Chaos run, seed {seed}</title>\
         <style>{STYLE}</style><h1>Chaos run, seed {seed}</h1>{verdict}\
         <p>{seconds} s of load on three nodes; {confirms} publishes confirmed, {deliveries} deliveries, \
         {churned} queues declared, used and deleted, {replied} requests answered, {rude} acts of a rude client, {faults} faults. {links}</p>",
        seed = schedule.seed,
        seconds = schedule.duration_ms / 1_000,
        confirms = outcome.log.confirms(),
        deliveries = outcome.log.delivered.len(),
        churned = outcome.log.churned,
        replied = outcome.log.replied,
        rude = outcome.log.rude,
        faults = outcome.injected.len(),
        links = escape(&links(outcome)),
    );
    page += &timeline(outcome);
    page += &faults(&outcome.injected, &outcome.gaps);
    page += &verdicts(outcome);
    page += "</html>\n";
    page
}

/// By what faults of links were made.
fn links(outcome: &Outcome) -> String {
    let why = outcome.why_proxies.as_deref().unwrap_or_default();
    match outcome.links {
        Wiring::Namespaces => {
            "Each node had a network namespace of its own; faults of links were made \
                               by iptables, NFQUEUE and tc."
                .to_owned()
        }
        Wiring::Proxies => {
            format!(
                "Faults of links were made by a proxy on each link, since this machine has no \
                     namespaces for it: {why}"
            )
        }
        Wiring::Direct => String::new(),
    }
}

fn faults(injected: &[Injected], gaps: &[Gap]) -> String {
    let mut table = String::from(
        "<h2>Faults</h2><table><tr><th>at<th>fault<th>nodes<th>lasted<th>without confirms during it\
         <th>to the next confirm after it<th>effect, as read back</tr>",
    );
    let mut gaps = gaps.iter();
    for one in injected {
        let (effect, gap) = match &one.effect {
            Effect::Seen(how) => (escape(how), gaps.next()),
            Effect::Wrong(how) => (format!("<b class=bad>wrong</b>: {}", escape(how)), None),
            Effect::Missed(how) => (format!("<b class=bad>not seen</b>: {}", escape(how)), None),
            Effect::Skipped(why) => (format!("skipped: {}", escape(why)), None),
        };
        let ms = |time: Duration| format!("{} ms", time.as_millis());
        let [during, after] = [gap.map(|gap| gap.during), gap.map(|gap| gap.after)]
            .map(|time| time.map(ms).unwrap_or_default());
        let _ = write!(
            table,
            "<tr><td class=n>{:.1} s<td>{}<td>{:?}<td class=n>{:.1} s<td class=n>{during}\
             <td class=n>{after}<td>{effect}</tr>",
            one.began.as_secs_f64(),
            one.event.counts_as,
            one.nodes,
            (one.ended.saturating_sub(one.began)).as_secs_f64(),
        );
    }
    table + "</table>"
}

fn verdicts(outcome: &Outcome) -> String {
    let mut text = format!("<h2>Verdict</h2><p>{} violations.</p>", outcome.violations.len());
    for violation in outcome.violations.iter().take(SHOWN) {
        let story = format!("{violation:?}");
        let life = life(&story, &outcome.log, &outcome.injected, outcome.begun);
        let _ = write!(text, "<pre>{}\n\n{}</pre>", escape(&story), escape(&life.join("\n")));
    }
    for kind in &outcome.missed {
        let _ = write!(text, "<p class=bad>{kind} never took effect.</p>");
    }
    for (kind, why) in &outcome.skipped {
        let _ = write!(text, "<p>{kind} was skipped: {}</p>", escape(why));
    }
    text
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
