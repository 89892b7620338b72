//! Prefetch, flow, recover, confirm mode: how a client configures a channel (QOS-01 to 04, QOS-06
//! to 09, CHN-08, ACK-09, CNF-01).

use crate::{
    channel::{Action, Out, confirm::Confirms, machine::Channel},
    codec::cold::{basic, channel, confirm},
    connection::close::Fault,
};
use quorate_types::ReplyCode;

impl Channel {
    pub(crate) fn qos(&mut self, qos: basic::Qos, out: &mut Out<'_>) -> Result<(), Fault> {
        let basic::Qos { prefetch_size, prefetch_count, global } = qos;
        if prefetch_size != 0 {
            let text = format!("prefetch_size!=0 ({prefetch_size})");
            return Err(Fault::new(ReplyCode::NotImplemented, text, basic::Qos::ID));
        }
        if global {
            // One limit for all consumers of the channel, on any queue type (QOS-06, Q-12).
            self.limit((prefetch_count > 0).then_some(prefetch_count), out);
        } else {
            // For consumers started from now on (QOS-02); ends a channel-wide limit (QOS-06).
            self.prefetch = prefetch_count;
            self.limit(None, out);
        }
        out.reply(self.id, basic::QosOk {});
        Ok(())
    }

    fn limit(&mut self, limit: Option<u16>, out: &mut Out<'_>) {
        if self.limit != limit {
            self.limit = limit;
            out.act(Action::LimitChannel(self.id, limit));
        }
    }

    pub(crate) fn flow(&self, flow: channel::Flow, out: &mut Out<'_>) -> Result<(), Fault> {
        if !flow.active {
            let id = channel::Flow::ID;
            return Err(Fault::new(ReplyCode::NotImplemented, "active=false", id));
        }
        out.reply(self.id, channel::FlowOk { active: true });
        Ok(())
    }

    /// `basic.recover` and `recover-async` (ACK-09).
    pub(crate) fn recover(
        &mut self,
        requeue: bool,
        asynchronous: bool,
        out: &mut Out<'_>,
    ) -> Result<(), Fault> {
        if !requeue {
            let id = if asynchronous { basic::RecoverAsync::ID } else { basic::Recover::ID };
            return Err(Fault::new(ReplyCode::NotImplemented, "requeue=false", id));
        }
        self.unacked.recover(out.effects);
        if !asynchronous {
            out.reply(self.id, basic::RecoverOk {});
        }
        Ok(())
    }

    pub(crate) fn confirm_select(
        &mut self,
        select: &confirm::Select,
        out: &mut Out<'_>,
    ) -> Result<(), Fault> {
        if self.transaction.is_some() {
            let text = "cannot switch from tx to confirm mode";
            return Err(Fault::new(ReplyCode::PreconditionFailed, text, confirm::Select::ID));
        }
        // Idempotent, and for good (CNF-01).
        self.confirms.get_or_insert_with(Confirms::new);
        if !select.nowait {
            out.reply(self.id, confirm::SelectOk {});
        }
        Ok(())
    }
}
