//! Real clusters for tests: processes of the real binary, clients, raw sockets, and ways to wait.

pub mod amqp;
pub mod cgroup;
pub mod ctl;
pub mod dead_letters;
pub mod disk;
pub mod http;
pub mod links;
pub mod members;
pub mod metrics;
pub mod process;
pub mod scale;
pub mod spread;
pub mod tls;
pub mod wait;
pub mod wall_clock;
pub mod wire;

mod aftermath;
mod cluster;
mod figure;
mod machine;
mod node;
mod ports;

pub use cluster::{Cluster, GROUPS, Options, binary, write_secret};
pub use figure::figure;
pub use machine::package_dir;
pub use node::Node;
pub use ports::Port;
