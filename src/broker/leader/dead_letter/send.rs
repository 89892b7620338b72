//! Sends letters that have a transfer number, stream by stream, up to the bytes that a stream may
//! have in flight (LET 1, 2).

use super::{
    DeadLetters,
    annotate::{Death, Letter},
    propose, route,
};
use crate::{
    Share, front::proposer::Courier, leader::enqueue_options::EnqueueOptions, peers::Sent,
};
use bytes::{Bytes, BytesMut};
use quorate_queue::{Command, LetterWorker, TransferView};
use quorate_storage::codec::{
    batch::{ProposedBatch, ProposedRun, Sender},
    message,
};
use quorate_types::{Home, LetterHome, PlantedBug, Sequence};
use std::sync::Arc;

/// Most bytes of messages in one batch.
const SEND_BYTES_MAX: usize = 1 << 20;

impl DeadLetters {
    /// Sends the numbered letters that have not been sent in this leadership (LET 1).
    pub(super) fn send_letters(&self, home: Home) {
        let streams = self.led.with_machine(home, |machine| {
            let own = machine.letter_home();
            let streams = machine.streams().map(|stream| (stream, machine.stream_mark(stream)));
            (own, streams.collect::<Vec<_>>())
        });
        let Some((own, streams)) = streams else { return };
        for (stream, mark) in streams {
            if let LetterHome::Start(session) = stream
                && self.catalog.read().has_ended(session)
            {
                let ended = self.led.with_machine(home, |it| LetterWorker::end_stream(it, stream));
                propose(&self.led, home, ended.flatten());
                continue;
            }
            self.send_stream(home, own, stream, mark);
        }
    }

    fn send_stream(&self, home: Home, own: LetterHome, stream: LetterHome, mark: Sequence) {
        let leader = self.proposers.leader(stream.home());
        let Some((leader, _)) = leader else { return };
        loop {
            let has_room = self.context.memory.room_bytes(Share::Letters) > 0;
            let from = self.decide(home, |it, now| it.send_from(stream, mark, has_room, now));
            let Some(from) = from.flatten() else { return };
            let transfers = self.led.with_machine(home, |it| LetterWorker::batch(it, stream, from));
            let Some(batch) = self.batch_of(home, own, mark, &transfers.unwrap_or_default()) else {
                return;
            };
            let batch = Arc::new(batch);
            let through = Sequence(batch.first.0 + batch.commands.len() as u64 - 1);
            let bytes = batch.runs.iter().flat_map(|run| &run.messages).map(Bytes::len).sum();
            self.decide(home, |worker, _| worker.sent(stream, through, bytes));
            if self.proposers.carry(stream.home(), leader, &batch) != Sent::OnItsWay {
                // The next round tries again.
                self.decide(home, |worker, _| worker.send_again(stream, batch.first));
                return;
            }
            if PlantedBug::LetterRemovedBeforeTarget.is_in() {
                let (first, other) = (batch.first, Vec::new());
                let removed = Command::DeadLettered { stream, first, last: through, other };
                propose(&self.led, home, Some(removed));
            }
        }
    }

    /// A batch of the first of these transfers, up to its size limit; `None` if there are none, or
    /// if the first one's body is not available here.
    fn batch_of(
        &self,
        home: Home,
        own: LetterHome,
        mark: Sequence,
        transfers: &[TransferView],
    ) -> Option<ProposedBatch> {
        let first = transfers.first()?.number;
        let mut batch = Batch::default();
        // Bodies of one queue are read together: one record can hold many of them.
        for of_queue in transfers.chunk_by(|one, next| one.queue == next.queue) {
            let room = SEND_BYTES_MAX.saturating_sub(batch.bytes);
            if room == 0 {
                break;
            }
            let Some(queue) = of_queue.first().map(|it| it.queue) else { break };
            let wanted: Vec<_> = of_queue.iter().map(|it| it.message).collect();
            let bodies = self.letter_bodies(home, queue, &wanted, room);
            let added =
                of_queue.iter().zip(&bodies).map_while(|(it, body)| batch.add(self, it, body));
            if added.count() < of_queue.len() {
                break;
            }
        }
        let Batch { runs, commands, .. } = batch;
        let sender = Sender::Letters(own);
        (!commands.is_empty()).then_some(ProposedBatch { sender, first, mark, runs, commands })
    }
}

/// A batch under construction.
#[derive(Default)]
struct Batch {
    runs: Vec<ProposedRun>,
    commands: Vec<Command>,
    bytes: usize,
    buffer: BytesMut,
}

impl Batch {
    /// Adds a letter as its target gets it; `None` if the stored message is malformed.
    fn add(&mut self, letters: &DeadLetters, transfer: &TransferView, bytes: &Bytes) -> Option<()> {
        let TransferView { name, reason, died_at, via, .. } = transfer;
        let death = Death { queue: name, reason: *reason, at: *died_at };
        let Letter { message: letter, properties, .. } = route::letter(bytes, death, via)?;
        let queue = transfer.target;
        let EnqueueOptions { level, head } = letters.led.enqueue_options_of(
            &letters.catalog.read(),
            queue,
            &properties,
            &letter.body,
        );
        let place = self.runs.iter().position(|run| (run.queue, run.level) == (queue, level));
        let place = place.unwrap_or_else(|| {
            self.runs.push(ProposedRun { queue, level, heads: Vec::new(), messages: Vec::new() });
            self.runs.len() - 1
        });
        let run = self.runs.get_mut(place)?;
        let first = u32::try_from(run.heads.len()).ok()?;
        let number = u32::try_from(place).ok()?;
        self.bytes += message::encode_into(&letter, &mut self.buffer);
        run.heads.push(head);
        run.messages.push(self.buffer.split().freeze());
        self.commands.push(Command::Transfer { run: number, first, attempt: transfer.attempt });
        Some(())
    }
}
