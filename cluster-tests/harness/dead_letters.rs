//! Dead letters as a client sees them: how a message is made one, and what its history says.

use super::amqp::headers;
use super::wait::{eventually, in_time};
use lapin::message::Delivery;
use lapin::options::{BasicGetOptions, BasicRejectOptions};
use lapin::types::AMQPValue;
use lapin::{BasicProperties, Channel};

/// An entry of `x-death`: queue, reason and count.
pub type Death = (String, String, i64);

/// What `x-death` says, in its order.
///
/// # Panics
/// When it is there and has another shape.
#[must_use]
pub fn deaths(properties: &BasicProperties) -> Vec<Death> {
    let headers = headers(properties);
    let Some(AMQPValue::FieldArray(deaths)) = headers.get("x-death") else { return Vec::new() };
    let deaths = deaths.as_slice().iter().map(|death| {
        let death = death.as_field_table().expect("a table").inner();
        let said = |field: &str| death[field].as_long_string().expect("a text").to_string();
        (said("queue"), said("reason"), death["count"].as_long_long_int().expect("a count"))
    });
    deaths.collect()
}

/// An entry as [`deaths`] gives it.
#[must_use]
pub fn death(queue: &str, reason: &str, count: i64) -> Death {
    (queue.to_owned(), reason.to_owned(), count)
}

/// Gets one message and rejects it, without requeueing.
///
/// # Panics
/// When there is none.
pub async fn reject_one(channel: &Channel, queue: &str) {
    let get = channel.basic_get(queue.into(), BasicGetOptions::default());
    let got = in_time(&format!("get from '{queue}'"), get).await.expect("get-ok");
    let got = got.unwrap_or_else(|| panic!("'{queue}' is empty"));
    got.delivery.reject(BasicRejectOptions { requeue: false }).await.expect("sent");
}

/// The next message of a queue, acked; waits for it.
///
/// # Panics
/// When none comes.
pub async fn arrives(channel: &Channel, queue: &str) -> Delivery {
    let what = format!("'{queue}' gets a message");
    let got = eventually(&what, || async {
        let options = BasicGetOptions { no_ack: true };
        let got = channel.basic_get(queue.into(), options).await;
        got.map_err(|error| error.to_string())?.ok_or_else(|| "it is empty".to_owned())
    });
    got.await.delivery
}
