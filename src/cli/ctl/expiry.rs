//! `certificates` and `check_certificate_expiration`: the certificates that a node uses, and those that
//! expire soon.

use super::checks::CheckVerb;
use super::connect::{Connected, call_failure};
use super::exit::{Exit, Failure};
use super::job::{Found, Job};
use quorate_management::{PERIOD_UNITS, wire};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// A period such as 4 weeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    within: u32,
    unit: &'static str,
    seconds: i64,
}

/// The period of `--within` and `--unit`.
///
/// # Errors
/// They are no period.
pub(super) fn period(job: &Job<'_>) -> Result<Period, Failure> {
    let options = &job.invocation.options;
    let (within, unit) = (options.value("within"), options.value("unit").unwrap_or("weeks"));
    let refuse = |text: String| Failure::new(Exit::Data, format!("Error:\n{text}\n"));
    let Some((unit, seconds)) =
        PERIOD_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))
    else {
        return Err(refuse(format!(
            "unit '{unit}' is not supported. Please use one of: days, weeks, months, years"
        )));
    };
    let within: u32 = match within.map(str::parse) {
        None => 4,
        Some(Ok(within)) => within,
        Some(Err(_)) => return Err(refuse("--within is not a number".to_owned())),
    };
    Ok(Period { within, unit, seconds: seconds.saturating_mul(within.into()) })
}

/// Lists the certificates of the asked node, or those that expire.
pub(super) async fn check(
    verb: CheckVerb,
    job: &Job<'_>,
    connected: &mut Connected,
) -> Result<Found, Failure> {
    let request = wire::NodeRequest { caller: wire::caller() };
    let process = connected.process.describe(request).await;
    let files = process.map_err(|status| call_failure(&status))?.into_inner().certificates;
    if verb == CheckVerb::Certificates {
        return Ok(listed(&files));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(expiring(&files, period(job)?, i64::try_from(now).unwrap_or(i64::MAX)))
}

/// The lines about a file: its certificates, or why it cannot be read.
fn lines(
    file: &wire::CertificateFile,
    shown: impl Fn(&wire::CertificateFacts) -> bool,
) -> Vec<String> {
    let place = format!("setting {}: {}", file.setting, file.path);
    if !file.error.is_empty() {
        return vec![format!("{place}: {}", file.error)];
    }
    let certificates = file.certificates.iter().filter(|it| shown(it));
    let line = |it: &wire::CertificateFacts| {
        let (subject, issuer) = (&it.subject, &it.issuer);
        let (from, until) = (day(it.not_before_s), day(it.not_after_s));
        format!("{place}: subject {subject}, issuer {issuer}, valid from {from} until {until}")
    };
    certificates.map(line).collect()
}

fn shape(file: &wire::CertificateFile, shown: impl Fn(&wire::CertificateFacts) -> bool) -> Value {
    let certificates = file.certificates.iter().filter(|it| shown(it)).map(|it| {
        json!({
            "subject": it.subject,
            "issuer": it.issuer,
            "not_before": day(it.not_before_s),
            "not_after": day(it.not_after_s),
        })
    });
    json!({
        "setting": file.setting,
        "path": file.path,
        "error": file.error,
        "certificates": certificates.collect::<Vec<_>>(),
    })
}

fn listed(files: &[wire::CertificateFile]) -> Found {
    let lines: Vec<String> = files.iter().flat_map(|file| lines(file, |_| true)).collect();
    let shapes: Vec<Value> = files.iter().map(|file| shape(file, |_| true)).collect();
    let none = "The node uses no certificates.".to_owned();
    let text = if lines.is_empty() { none } else { lines.join("\n") };
    Found { is_well: true, text, json: json!({ "result": "ok", "certificates": shapes }) }
}

/// The certificates that are not valid for the whole period from now on, and files that cannot be read.
fn expiring(files: &[wire::CertificateFile], period: Period, now_s: i64) -> Found {
    let until = now_s.saturating_add(period.seconds);
    let expires = |it: &wire::CertificateFacts| it.not_after_s < until || it.not_before_s > now_s;
    let lines: Vec<String> = files.iter().flat_map(|file| lines(file, expires)).collect();
    if lines.is_empty() {
        let Period { within, unit, .. } = period;
        let text = format!("No certificates are expiring within {within} {unit}.");
        return Found { is_well: true, text, json: json!({ "result": "ok" }) };
    }
    let shapes: Vec<Value> = files.iter().map(|file| shape(file, expires)).collect();
    let json = json!({ "result": "error", "expired": shapes });
    Found { is_well: false, text: lines.join("\n"), json }
}

/// A day such as 2026-11-25, by the civil calendar.
fn day(second: i64) -> String {
    // Howard Hinnant's days_from_civil, backwards: years begin in March, eras have 400 years.
    let days = second.div_euclid(86_400) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + later)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (second, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_795_564_800, "2026-11-25"),
            (-1, "1969-12-31"),
        ] {
            assert_eq!(day(second), expected);
        }
    }

    #[test]
    fn certificates_that_expire_within_the_period_are_named() {
        let certificate = |not_after_s| wire::CertificateFacts {
            subject: "CN=a".to_owned(),
            issuer: "CN=ca".to_owned(),
            not_before_s: 0,
            not_after_s,
        };
        let file = |certificates, error: &str| wire::CertificateFile {
            setting: "tls_certificate_file".to_owned(),
            path: "/a.pem".to_owned(),
            error: error.to_owned(),
            certificates,
        };
        let period = Period { within: 1, unit: "weeks", seconds: 604_800 };
        let files = [file(vec![certificate(604_801), certificate(600_000)], "")];
        let found = expiring(&files, period, 1);
        let line = "setting tls_certificate_file: /a.pem: subject CN=a, issuer CN=ca, valid from \
                    1970-01-01 until 1970-01-07";
        assert_eq!((found.is_well, found.text.as_str()), (false, line));
        assert!(expiring(&files, Period { seconds: 0, ..period }, 1).is_well);
        let unreadable = expiring(&[file(Vec::new(), "no such file")], period, 1);
        assert!(!unreadable.is_well, "nobody knows when it expires");
    }
}
