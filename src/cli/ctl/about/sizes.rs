//! `message_size_stats`: how many messages of which size were published.

use super::super::format::Sheet;
use super::super::value::Value;
use quorate_management::wire;

/// RabbitMQ's names of the buckets.
const BUCKETS: [&str; 9] = [
    "below 100B",
    "between 100B and 1KB",
    "between 1KB and 10KB",
    "between 10KB and 100KB",
    "between 100KB and 1MB",
    "between 1MB and 10MB",
    "between 10MB and 50MB",
    "between 50MB and 100MB",
    "above 100MB",
];

/// The sizes, of all nodes that have answered, together.
pub(super) fn sheet(cluster: &wire::Cluster) -> Sheet {
    let mut counts = [0_u64; BUCKETS.len()];
    for node in cluster.members.iter().filter_map(|member| member.status.as_ref()) {
        for (sum, count) in counts.iter_mut().zip(&node.message_sizes) {
            *sum = sum.saturating_add(*count);
        }
    }
    let all = counts.iter().fold(0, |all: u64, count| all.saturating_add(*count)).max(1);
    let row = |(name, count): (&&str, u64)| {
        let percentage = format!("{:.2}", count as f64 * 100.0 / all as f64);
        vec![Value::word(*name), Value::Number(count), Value::word(percentage)]
    };
    let columns = ["Message Size", "Count", "Percentage"].map(str::to_owned).to_vec();
    Sheet { columns, rows: BUCKETS.iter().zip(counts).map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::super::format::render;
    use super::super::super::options::Formatter;
    use super::*;

    fn of(nodes: &[&[u64]]) -> String {
        let member = |sizes: &&[u64]| {
            let status = wire::Node { message_sizes: sizes.to_vec(), ..Default::default() };
            wire::Member { status: Some(status), ..Default::default() }
        };
        let members = nodes.iter().map(member).collect();
        let cluster = wire::Cluster { members, ..Default::default() };
        render(&sheet(&cluster), Formatter::Table, true)
    }

    #[test]
    fn sizes_of_all_nodes_are_added() {
        let text = of(&[&[1, 2, 0, 0, 0, 0, 0, 0, 1], &[0, 4], &[]]);
        let lines: Vec<&str> = text.lines().take(3).collect();
        let wanted = [
            "Message Size\tCount\tPercentage",
            "below 100B\t1\t12.50",
            "between 100B and 1KB\t6\t75.00",
        ];
        assert_eq!(lines, wanted);
        assert!(text.ends_with("above 100MB\t1\t12.50\n"), "{text}");
        assert!(of(&[]).ends_with("above 100MB\t0\t0.00\n"), "nothing was published");
    }
}
