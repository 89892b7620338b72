//! Flags of `quorate perf`.

use super::message::HEAD_BYTES;
use super::uri::UriParser;
use amq_protocol::types::{AMQPValue, FieldTable, ShortString};
use amq_protocol::uri::AMQPUri;
use clap::Parser;
use std::time::Duration;

/// Publishes and consumes messages and measures the broker. Modelled on RabbitMQ PerfTest; works
/// with any AMQP 0-9-1 broker. Prints a line every second and a summary at the end.
#[derive(Clone, Debug, Parser)]
#[command(name = "perf")]
pub(crate) struct Options {
    /// URIs of the brokers, amqp://user:password@host:port/vhost, separated by commas. Connections
    /// use them in turn. In the variable QUORATE_URI instead, a password is not in the list of
    /// processes; the flag takes precedence.
    #[arg(
        long,
        value_name = "URI",
        value_delimiter = ',',
        value_parser = UriParser,
        env = "QUORATE_URI",
        hide_env_values = true,
        default_value = "amqp://guest:guest@127.0.0.1:5672/%2F"
    )]
    pub(crate) uri: Vec<AMQPUri>,
    /// URIs for publishers, instead of --uri.
    #[arg(long, value_name = "URI", value_delimiter = ',', value_parser = UriParser)]
    pub(crate) publisher_uri: Vec<AMQPUri>,
    /// URIs for consumers, instead of --uri.
    #[arg(long, value_name = "URI", value_delimiter = ',', value_parser = UriParser)]
    pub(crate) consumer_uri: Vec<AMQPUri>,
    /// URI for the connection that declares the queues. By default the first publisher URI; without
    /// publishers, the first consumer URI.
    #[arg(long, value_name = "URI", value_parser = UriParser)]
    pub(crate) declare_uri: Option<AMQPUri>,
    /// Number of publishers. Each has its own connection.
    #[arg(long, short = 'x', default_value_t = 1)]
    pub(crate) publishers: u16,
    /// Number of consumers. Each has its own connection.
    #[arg(long, short = 'y', default_value_t = 1)]
    pub(crate) consumers: u16,
    /// Number of queues. Publisher i of P publishes to the queues i, i+P, i+2P, ... in turn;
    /// consumers are assigned in the same way. If there are more publishers than queues, several
    /// publishers share a queue.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) queues: u32,
    /// Prefix of the queue names: PREFIX-1, PREFIX-2, ...
    #[arg(long, value_name = "PREFIX", default_value = "perf")]
    pub(crate) queue_name: String,
    /// Type of the queues: classic, quorum, or default (the broker's default type).
    #[arg(long, value_name = "TYPE", default_value = "quorum")]
    pub(crate) queue_type: String,
    /// Further queue argument. A whole number, true or false is sent as such, any other value as a
    /// string. Can be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) queue_arg: Vec<String>,
    /// Do not purge the queues at the start.
    #[arg(long)]
    pub(crate) no_purge: bool,
    /// Do not delete the queues at the end.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Size of a message body, in bytes.
    #[arg(long, short = 's', value_name = "BYTES", default_value_t = 1024)]
    pub(crate) size: usize,
    /// Unconfirmed messages of a publisher; at this limit it waits for confirms. 0: no confirms. 1
    /// measures the latency of single messages.
    #[arg(long, short = 'c', value_name = "WINDOW", default_value_t = 1000)]
    pub(crate) confirm: usize,
    /// Publish transient messages. By default messages are persistent.
    #[arg(long)]
    pub(crate) transient: bool,
    /// Publish with the mandatory flag.
    #[arg(long)]
    pub(crate) mandatory: bool,
    /// Prefetch limit: unacknowledged deliveries of a consumer. 0: no limit.
    #[arg(long, short = 'q', default_value_t = 1000)]
    pub(crate) prefetch: u16,
    /// Deliveries that are acknowledged together, with one basic.ack (multiple). 0: automatic
    /// acknowledgement by the broker.
    #[arg(long, short = 'A', value_name = "MESSAGES", default_value_t = 100)]
    pub(crate) ack_every: u64,
    /// Reject deliveries (basic.nack without requeue) instead of acknowledging them. Queues with a
    /// dead-letter exchange then dead-letter them.
    #[arg(long)]
    pub(crate) nack: bool,
    /// Publish rate of all publishers together, in messages per second. 0: no limit.
    #[arg(long, short = 'r', value_name = "MESSAGES", default_value_t = 0.0)]
    pub(crate) rate: f64,
    /// Seconds to publish after the warm-up; without publishers, seconds to consume. If neither
    /// --duration nor --messages is given: 10.
    #[arg(long, short = 'z', value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Messages that all publishers together publish; without publishers, messages to consume.
    #[arg(long, short = 'C')]
    pub(crate) messages: Option<u64>,
    /// Seconds before the measurement begins.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "0")]
    pub(crate) warmup: Duration,
    /// Longest wait for missing confirms and deliveries at the end: the run ends after this many
    /// seconds without one.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    pub(crate) drain: Duration,
    /// Process ids of the brokers, separated by commas, to measure their CPU time and memory. By
    /// default the nodes of a `quorate dev` cluster on the ports of the URIs.
    #[arg(long, value_delimiter = ',')]
    pub(crate) pids: Vec<u32>,
    /// Check that every confirmed message is delivered once and in order. Needs --size 20 or more.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print the summary as one JSON object. The line of each second goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
    /// Number of threads. One thread uses the least CPU time.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl Options {
    /// Refuses flags that contradict each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.publishers == 0 && self.consumers == 0 {
            return Err("--publishers and --consumers must not both be 0".to_owned());
        }
        if self.verify && self.size < HEAD_BYTES {
            return Err(format!("--verify needs --size {HEAD_BYTES} or more"));
        }
        if self.verify && (self.publishers == 0 || self.consumers == 0) {
            return Err("--verify needs publishers and consumers".to_owned());
        }
        if self.ack_every > u64::from(self.prefetch) && self.prefetch > 0 {
            return Err("--ack-every must not be greater than --prefetch".to_owned());
        }
        if self.nack && self.ack_every == 0 {
            return Err("--nack needs --ack-every 1 or more".to_owned());
        }
        if !self.rate.is_finite() || self.rate < 0.0 {
            return Err("--rate must be 0 or more".to_owned());
        }
        self.queue_arguments().map(|_| ())
    }

    /// Duration in seconds, if nothing else ends the run.
    pub(crate) fn duration(&self) -> Option<Duration> {
        match (self.duration, self.messages) {
            (None, None) => Some(Duration::from_secs(10)),
            (duration, _) => duration,
        }
    }

    pub(crate) fn publisher_uris(&self) -> &[AMQPUri] {
        if self.publisher_uri.is_empty() { &self.uri } else { &self.publisher_uri }
    }

    pub(crate) fn consumer_uris(&self) -> &[AMQPUri] {
        if self.consumer_uri.is_empty() { &self.uri } else { &self.consumer_uri }
    }

    /// All URIs in use.
    pub(crate) fn all_uris(&self) -> impl Iterator<Item = &AMQPUri> {
        self.publisher_uris().iter().chain(self.consumer_uris()).chain(&self.declare_uri)
    }

    /// The queues' arguments.
    pub(crate) fn queue_arguments(&self) -> Result<FieldTable, String> {
        let mut arguments = FieldTable::default();
        if self.queue_type != "default" {
            let kind = AMQPValue::LongString(self.queue_type.as_str().into());
            arguments.insert("x-queue-type".into(), kind);
        }
        for argument in &self.queue_arg {
            let (name, value) = argument
                .split_once('=')
                .ok_or_else(|| format!("--queue-arg '{argument}' is not NAME=VALUE"))?;
            let name = ShortString::try_new(name)
                .map_err(|error| format!("--queue-arg '{argument}': {error}"))?;
            let value = match (value.parse::<i64>(), value) {
                (Ok(number), _) => AMQPValue::LongLongInt(number),
                (Err(_), "true") => AMQPValue::Boolean(true),
                (Err(_), "false") => AMQPValue::Boolean(false),
                (Err(_), text) => AMQPValue::LongString(text.into()),
            };
            arguments.insert(name, value);
        }
        Ok(arguments)
    }

    /// Indexes of the queues of worker `at` of `workers`: every worker has at least one queue, and
    /// every queue at least one worker.
    pub(crate) fn queues_of(&self, at: u16, workers: u16) -> Vec<u32> {
        let (at, workers) = (u32::from(at), u32::from(workers.max(1)));
        if workers >= self.queues {
            return vec![at % self.queues];
        }
        (at..self.queues).step_by(usize::try_from(workers).unwrap_or(1)).collect()
    }

    /// The part of `--messages` of publisher `at`.
    pub(crate) fn messages_of(&self, at: u16) -> Option<u64> {
        let publishers = u64::from(self.publishers.max(1));
        self.messages.map(|all| all / publishers + u64::from(u64::from(at) < all % publishers))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn options(line: &str) -> Options {
        Options::try_parse_from(std::iter::once("perf").chain(line.split_whitespace())).unwrap()
    }

    #[test]
    fn queues_are_shared_out_so_that_none_is_left() {
        let few = options("--queues 5");
        assert_eq!(few.queues_of(0, 2), [0, 2, 4]);
        assert_eq!(few.queues_of(1, 2), [1, 3]);
        let many = options("--queues 2");
        assert_eq!(
            (0..5).map(|at| many.queues_of(at, 5)).collect::<Vec<_>>(),
            [[0], [1], [0], [1], [0]]
        );
    }

    #[test]
    fn messages_are_shared_out_to_the_last() {
        let options = options("--publishers 3 --messages 8");
        assert_eq!((0..3).filter_map(|at| options.messages_of(at)).collect::<Vec<_>>(), [3, 3, 2]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(options("--verify --size 12").check().is_err());
        assert!(options("--verify --consumers 0").check().is_err());
        assert!(options("--ack-every 20 --prefetch 10").check().is_err());
        assert!(options("--queue-arg x").check().is_err());
        assert!(options(&format!("--queue-arg {}=1", "x".repeat(256))).check().is_err());
        assert!(options("--publishers 0 --consumers 0").check().is_err());
        assert!(options("--verify --size 20").check().is_ok());
    }

    #[test]
    fn help_names_the_variable_of_the_uri_and_does_not_show_its_value() {
        let mut command = <Options as clap::CommandFactory>::command();
        let uri = command.get_arguments().find(|argument| argument.get_id() == "uri").unwrap();
        assert_eq!(uri.get_env(), Some(std::ffi::OsStr::new("QUORATE_URI")));
        assert!(uri.is_hide_env_values_set());
        assert!(command.render_long_help().to_string().contains("[env: QUORATE_URI]"));
    }

    #[test]
    fn a_run_ends_by_time_unless_it_ends_by_messages() {
        assert_eq!(options("").duration(), Some(Duration::from_secs(10)));
        assert_eq!(options("--messages 5").duration(), None);
        assert_eq!(options("--messages 5 -z 2").duration(), Some(Duration::from_secs(2)));
    }
}
