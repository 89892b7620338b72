//! A publisher that commits a few messages at a time, and now and then thinks better of it.

use super::publisher::publish;
use super::{Answer, History, Number, PublisherOptions};
use crate::harness::amqp::{close_in_time, connect_in_time, while_connected};
use lapin::Channel;
use std::time::Duration;
use tokio::sync::watch;

/// Of so many transactions one is rolled back.
const ROLLED_BACK: u64 = 4;

/// Until told to stop, or the connection is lost.
pub(super) async fn session(
    history: &History,
    options: &PublisherOptions,
    uri: &str,
    stopped: &watch::Receiver<bool>,
) -> lapin::Result<()> {
    let connection = connect_in_time(uri).await?;
    let producer = history.producer();
    let opened = async {
        let channel = connection.create_channel().await?;
        channel.tx_select().await?;
        Ok(channel)
    };
    let channel = while_connected(&connection, opened).await?;
    let work = commit(history, options, &channel, producer, stopped);
    let ended = while_connected(&connection, work).await;
    history.unanswered(producer);
    ended?;
    close_in_time(&connection).await
}

async fn commit(
    history: &History,
    options: &PublisherOptions,
    channel: &Channel,
    producer: u32,
    stopped: &watch::Receiver<bool>,
) -> lapin::Result<()> {
    let per_second = options.per_second.max(1);
    let size = u64::from(options.transactions_of);
    let mut pace =
        tokio::time::interval(Duration::from_secs(1) * options.transactions_of / per_second);
    let mut transaction = 0;
    while !*stopped.borrow() {
        pace.tick().await;
        let first = transaction * size + 1;
        transaction += 1;
        let numbers: Vec<Number> =
            (first..first + size).map(|seq| Number { producer, seq }).collect();
        let commits = !transaction.is_multiple_of(ROLLED_BACK);
        let sent = send(history, options, channel, &numbers).await;
        let (answer, ended) = match sent {
            // Whatever becomes of the request, nobody has asked for a commit (TX-09).
            Err(error) => (Answer::Refused, Err(error)),
            Ok(()) if !commits => (Answer::Refused, channel.tx_rollback().await),
            Ok(()) => match channel.tx_commit().await {
                Ok(()) => (Answer::Confirmed, Ok(())),
                Err(error) => (Answer::Lost, Err(error)),
            },
        };
        numbers.iter().for_each(|number| history.answered(*number, answer));
        ended?;
    }
    Ok(())
}

async fn send(
    history: &History,
    options: &PublisherOptions,
    channel: &Channel,
    numbers: &[Number],
) -> lapin::Result<()> {
    for number in numbers {
        publish(history, options, channel, *number).await?.await?;
    }
    Ok(())
}
