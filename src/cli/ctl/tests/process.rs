//! The process of a node in the tests' clusters.

use quorate_management::{LogLine, Process, wire};
use std::sync::Arc;
use tokio::sync::broadcast;

/// The process of a node.
#[derive(Debug)]
pub(super) struct OneProcess(pub(super) u16);

impl Process for OneProcess {
    fn describe(&self) -> wire::Process {
        let variable = |name: &str, value: &str, origin: &str| wire::Variable {
            name: name.to_owned(),
            value: value.to_owned(),
            origin: origin.to_owned(),
        };
        let certificate = wire::CertificateFacts {
            subject: "CN=node".to_owned(),
            issuer: "CN=ca".to_owned(),
            not_before_s: 0,
            not_after_s: 86_400,
        };
        let file = wire::CertificateFile {
            setting: "tls_certificate_file".to_owned(),
            path: "/node.pem".to_owned(),
            error: String::new(),
            certificates: vec![certificate],
        };
        let addresses = vec!["127.0.0.1".to_owned()];
        wire::Process {
            settings: vec![
                variable("node_id", &self.0.to_string(), "from --node-id"),
                variable("zone", "", "default"),
            ],
            arguments: ["quorate", "server"].map(str::to_owned).to_vec(),
            environment: vec![variable("QUORATE_CLUSTER_SECRET", "[hidden]", "")],
            log: "<stderr>".to_owned(),
            nodes: vec![1, 2, 3],
            certificates: if self.0 == 2 { vec![file] } else { Vec::new() },
            threads: Vec::new(),
            interfaces: vec![wire::Interface { name: "lo".to_owned(), addresses }],
            tls_versions: ["tlsv1.3", "tlsv1.2"].map(str::to_owned).to_vec(),
            cipher_suites: vec!["TLS_AES_256_GCM_SHA384".to_owned()],
        }
    }

    fn log_lines(&self, most: usize) -> (Vec<LogLine>, broadcast::Receiver<LogLine>) {
        let (sender, lines) = broadcast::channel(8);
        sender.send(Arc::from("three")).unwrap();
        let kept = ["one", "two"].map(LogLine::from);
        (kept[2_usize.saturating_sub(most)..].to_vec(), lines)
    }

    fn set_log_level(&self, level: &str) -> Result<(), String> {
        if level == "debug" { Ok(()) } else { Err(format!("there is no log level '{level}'")) }
    }

    fn stop(&self) {}
}
