//! The answer to a get (SES 7).

use crate::front::proposers::Proposers;
use quorate_queue::{Command, Reply};
use quorate_types::{DeliveryNumber, Holder, Home, Sequence, SessionId};
use std::sync::Arc;

/// A get's answer in flight to its caller. If it is dropped before the caller takes it, its message
/// is given back (SES 7).
#[derive(Debug)]
pub(crate) struct GetAnswer {
    proposers: Arc<Proposers>,
    home: Home,
    session: SessionId,
    answer: Option<(Sequence, Reply)>,
}

impl GetAnswer {
    /// The answer to the get with that number.
    pub(crate) fn new(
        proposers: &Arc<Proposers>,
        home: Home,
        session: SessionId,
        answer: (Sequence, Reply),
    ) -> Self {
        Self { proposers: Arc::clone(proposers), home, session, answer: Some(answer) }
    }

    /// Passes the answer to the caller, which then has to give the message back.
    pub(crate) fn take(mut self) -> Option<(Sequence, Reply)> {
        self.answer.take()
    }
}

impl Drop for GetAnswer {
    fn drop(&mut self) {
        if let Some((sequence, Reply::Got(_))) = self.answer {
            let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
            let holder = Holder::Get(self.session, sequence);
            self.proposers.submit(self.home, Command::Release { holder, numbers });
        }
    }
}
