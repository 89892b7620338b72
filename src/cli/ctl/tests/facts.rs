//! What the simulated nodes say of themselves.

use quorate_management::{ListenerFacts, Naming, NodeFacts};
use quorate_types::NodeId;
use std::time::Instant;

pub(super) fn facts(id: u16) -> NodeFacts {
    NodeFacts {
        id: NodeId(id),
        name: Naming::RabbitMq.name(NodeId(id), "127.0.0.1:7672"),
        naming: Naming::RabbitMq,
        product: "RabbitMQ".to_owned(),
        product_version: "4.3.5".to_owned(),
        version: "0.1.0".to_owned(),
        data_dir: "/data".to_owned(),
        config_file: "/etc/quorate.toml".to_owned(),
        listeners: vec![ListenerFacts {
            interface: "127.0.0.1".to_owned(),
            port: 5671 + id,
            protocol: "amqp",
            purpose: "AMQP 0-9-1",
        }],
        certificates: Vec::new(),
        started: Instant::now(),
    }
}
