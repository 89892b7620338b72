//! Samples of a node over some rounds, and what the HTTP API shows of them.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use expect_test::expect;
use quorate_broker::view::{Figures, QueueFigure, Traffic};
use quorate_types::{Home, QueueId, QueueType, ShortString};
use serde_json::{Value, json};

const HOME: Home = Home::Group(GroupId(1));

fn queue(index: u64, traffic: Traffic) -> QueueFigure {
    let name = |text: String| ShortString::try_from(text).unwrap();
    QueueFigure {
        id: QueueId { home: HOME, index, position: 0 },
        name: ResourceName { vhost: name("/".to_owned()), name: name(format!("q{index}")) },
        queue_type: QueueType::Quorum,
        ready: traffic.published - traffic.acknowledged,
        ready_bytes: 0,
        unacknowledged: 0,
        unacknowledged_bytes: 0,
        memory_bytes: 0,
        delayed: 0,
        consumers: 0,
        dead_letters_waiting: 0,
        oldest_age_ms: None,
        traffic,
    }
}

/// Five seconds a round; in each one queue 1 gets ten messages, of which four are acknowledged.
fn sampled(rounds: u64) -> Rates {
    let rates = Rates::new(Sampling::default());
    for round in 0..rounds {
        let traffic = Traffic {
            published: 10 * round,
            delivered: 4 * round,
            acknowledged: 4 * round,
            ..Traffic::default()
        };
        let queues = vec![queue(1, traffic), queue(2, Traffic::default())];
        let figures = Figures { homes: vec![HOME], queues, ..Figures::default() };
        let node = [10 * round; fields::NODE.len()];
        let commits = [(GroupId(1), (round * 2, round * 700))];
        let now_ms = 100_000 + 5_000 * round;
        let round = Round { now_ms, node: &node, commits: &commits, figures: &figures };
        rates.sampler.lock().take(&round);
    }
    rates
}

fn request(kind: SampledKind, lengths: Option<wire::Span>) -> wire::StatisticsRequest {
    let kind = kind.into();
    wire::StatisticsRequest { kind, lengths, ..wire::StatisticsRequest::default() }
}

fn shown(rates: &Rates, kind: SampledKind, lengths: Option<wire::Span>) -> Value {
    let answer = rates.answer(&request(kind, lengths), 1).unwrap();
    let mut value = json!({});
    shown::insert(&mut value, fields_of(kind), answer.first());
    value
}

#[test]
fn a_queue_has_the_rates_that_scalers_read() {
    let rates = sampled(3);
    let answer = rates.answer(&request(SampledKind::Queues, None), 1).unwrap();
    assert_eq!(answer.len(), 1, "a queue without traffic has no samples");
    let value = shown(&rates, SampledKind::Queues, None);
    let at = |path: &str| value.pointer(path).cloned().unwrap();
    assert_eq!(at("/message_stats/publish_details/rate"), json!(2.0));
    assert_eq!(at("/message_stats/deliver_get_details/rate"), json!(0.8));
    assert_eq!(at("/message_stats/publish"), json!(20));
    assert_eq!(at("/messages_details/rate"), json!(1.2));
}

/// A queue whose leader this node has just become may have had its traffic elsewhere.
#[test]
fn a_new_leader_shows_no_rate_before_its_second_sample() {
    let rates = Rates::new(Sampling::default());
    let traffic = Traffic { published: 1_000_000, ..Traffic::default() };
    let figures =
        Figures { homes: vec![HOME], queues: vec![queue(1, traffic)], ..Figures::default() };
    for now_ms in [5_000, 10_000] {
        rates.sampler.lock().take(&Round {
            now_ms,
            node: &[0; fields::NODE.len()],
            commits: &[],
            figures: &figures,
        });
        let value = shown(&rates, SampledKind::Queues, None);
        assert_eq!(value.pointer("/message_stats/publish_details/rate"), Some(&json!(0.0)));
    }
}

#[test]
fn samples_are_shown_as_rabbitmq_shows_them() {
    let rates = sampled(4);
    let span = wire::Span { end_ms: 115_000, age_ms: 10_000, step_ms: 5_000 };
    let value = shown(&rates, SampledKind::Queues, Some(span));
    expect![[
        r#"{"avg":12.0,"avg_rate":1.2,"rate":1.2,"samples":[{"sample":18,"timestamp":115000},{"sample":12,"timestamp":110000},{"sample":6,"timestamp":105000}]}"#
    ]]
    .assert_eq(&value.get("messages_details").unwrap().to_string());
    assert_eq!(value.pointer("/message_stats/publish_details/samples"), None);
}

/// RabbitMQ's page shows so many of one object.
#[test]
fn the_samples_of_an_answer_are_bounded() {
    let span = wire::Span { end_ms: 0, age_ms: 499_000, step_ms: 1_000 };
    let lengths = request(SampledKind::Queues, Some(span));
    // Three lengths of 500 samples each.
    assert_eq!(check_samples(&lengths, 133), Ok(()));
    assert_eq!(check_samples(&lengths, 134), Err(TooManySamples));
    assert_eq!(check_samples(&request(SampledKind::Queues, None), 1_000_000), Ok(()));
    assert_eq!(check_samples(&request(SampledKind::Node, Some(span)), 100), Ok(()));
    let longest = wire::Span { end_ms: 0, age_ms: u64::MAX, step_ms: 1 };
    let longest = request(SampledKind::Queues, Some(longest));
    assert_eq!(check_samples(&longest, 1), Ok(()), "the samples of one field are bounded");
    assert_eq!(check_samples(&longest, 2), Err(TooManySamples));
    let zero = wire::Span { step_ms: 0, ..span };
    assert_eq!(check_samples(&request(SampledKind::Queues, Some(zero)), 1_000), Ok(()));
}

/// A node refuses before it copies samples; the queues of a page are few.
#[test]
fn only_chosen_queues_are_answered() {
    let rates = sampled(3);
    let traffic = Traffic { published: 1, ..Traffic::default() };
    let queues: Vec<_> = (1..=400).map(|index| queue(index, traffic)).collect();
    for now_ms in [115_000, 120_000] {
        rates.sampler.lock().take(&Round {
            now_ms,
            node: &[0; fields::NODE.len()],
            commits: &[],
            figures: &Figures { homes: vec![HOME], queues: queues.clone(), ..Figures::default() },
        });
    }
    let span = wire::Span { end_ms: 120_000, age_ms: 499_000, step_ms: 1_000 };
    let all = request(SampledKind::Queues, Some(span));
    assert_eq!(rates.answer(&all, 1), Err(TooManySamples));
    let id = |index| wire::QueueId { group: 1, node: 0, index, position: 0 };
    let page = wire::StatisticsRequest { queues: vec![id(7), id(9), id(9_999)], ..all };
    let answer = rates.answer(&page, 1).unwrap();
    let names: Vec<_> = answer.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["q7", "q9"]);
}

/// Two of the largest values are above what 64 bits hold.
#[test]
fn the_mean_of_the_largest_samples_is_shown() {
    let samples = wire::Samples { field: 0, end_ms: 10, step_ms: 5, values: vec![u64::MAX; 3] };
    let statistic = wire::Statistic { samples: vec![samples], ..wire::Statistic::default() };
    let mut value = json!({});
    shown::insert(&mut value, fields::QUEUE, Some(&statistic));
    let mean = value.pointer("/messages_details/avg").and_then(Value::as_f64).unwrap();
    assert!((mean / 1.8446744e19 - 1.0).abs() < 1e-6, "{mean}");
}

/// The bound of an answer keeps each of its messages below the 4 MiB that gRPC takes.
#[test]
fn a_part_of_an_answer_is_small_enough_for_grpc() {
    let objects = 256;
    let values = vec![u64::MAX; usize::try_from(ALL_SAMPLES_MAX).unwrap() / objects];
    let samples = wire::Samples { field: 1, end_ms: u64::MAX, step_ms: u64::MAX, values };
    let statistic = wire::Statistic {
        vhost: "v".repeat(255),
        name: "n".repeat(255),
        totals: vec![u64::MAX; fields::NODE.len()],
        rates: vec![f64::MAX; fields::NODE.len()],
        samples: vec![samples],
        ..wire::Statistic::default()
    };
    let part = wire::StatisticsPart { statistics: vec![statistic; objects] };
    assert!(prost::Message::encoded_len(&part) < 4 << 20);
}

/// The samples of a day are kept with coarser steps.
#[test]
fn a_node_keeps_long_samples_of_itself() {
    let rates = sampled(3_000);
    let end_ms = 100_000 + 5_000 * 2_999;
    let span = wire::Span { end_ms, age_ms: 3_600_000, step_ms: 60_000 };
    let value = shown(&rates, SampledKind::Node, Some(span));
    let samples = value.pointer("/messages_details/samples").unwrap().as_array().unwrap();
    assert_eq!(samples.len(), 61);
    let first = samples.first().unwrap().get("sample").unwrap().as_u64().unwrap();
    let last = samples.last().unwrap().get("sample").unwrap().as_u64().unwrap();
    assert_eq!(first - last, 7_200);
    assert_eq!(rates.commit_us(GroupId(1)), Some(350));
}

/// Virtual hosts go on counting when their queues are deleted.
#[test]
fn a_vhost_counts_what_its_queues_passed() {
    let rates = sampled(3);
    let value = shown(&rates, SampledKind::Vhosts, None);
    assert_eq!(value.pointer("/message_stats/publish"), Some(&json!(20)));
    rates.sampler.lock().take(&Round {
        now_ms: 115_000,
        node: &[0; fields::NODE.len()],
        commits: &[],
        figures: &Figures { homes: vec![HOME], ..Figures::default() },
    });
    let value = shown(&rates, SampledKind::Vhosts, None);
    assert_eq!(value.pointer("/message_stats/publish"), Some(&json!(20)));
    assert_eq!(value.pointer("/messages_details/rate"), Some(&json!(-2.4)));
}

#[test]
fn the_statistics_of_nodes_are_added() {
    let samples = |values: Vec<u64>| wire::Samples { field: 1, end_ms: 10, step_ms: 5, values };
    let statistic = |totals: Vec<u64>, rates, values| wire::Statistic {
        totals,
        rates,
        samples: vec![samples(values)],
        ..wire::Statistic::default()
    };
    let mut sum = statistic(vec![1], vec![0.5], vec![4, 3]);
    shown::add(&mut sum, &statistic(vec![2, 7], vec![1.0, 2.0], vec![1, 1, 1]));
    assert_eq!(sum, statistic(vec![3, 7], vec![1.5, 2.0], vec![5, 4, 1]));
}

/// A list is sorted by what it shows.
#[test]
fn a_value_at_a_path_is_what_is_shown_there() {
    let kinds = [fields::QUEUE, fields::CONNECTION, fields::VHOST, fields::NODE];
    for fields in kinds {
        let numbers = (0u32..).take(fields.len());
        let known = wire::Statistic {
            totals: numbers.clone().map(u64::from).collect(),
            rates: numbers.map(|number| f64::from(number) + 0.5).collect(),
            ..wire::Statistic::default()
        };
        for statistic in [None, Some(&known), Some(&wire::Statistic::default())] {
            let mut shown = json!({});
            shown::insert(&mut shown, fields, statistic);
            let names = fields.iter().map(|field| field.name);
            for name in names.chain(["message_stats", "nothing"]) {
                let details = format!("{name}_details");
                for path in [
                    vec![name],
                    vec![details.as_str()],
                    vec![details.as_str(), "rate"],
                    vec![details.as_str(), "rate", "x"],
                    vec![name, "rate"],
                    vec!["message_stats", name],
                    vec!["message_stats", details.as_str()],
                    vec!["message_stats", details.as_str(), "rate"],
                ] {
                    let pointer = format!("/{}", path.join("/"));
                    let at = shown::at(fields, statistic, &path);
                    assert_eq!(at.as_ref(), shown.pointer(&pointer), "{pointer}");
                }
            }
        }
    }
}
