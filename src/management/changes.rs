//! What `quorate ctl` changes through the admin service, apart from who asked and what is logged of it.

use crate::admin::{AWAIT_MOST, AdminService, vhost};
use crate::convert;
use crate::peers::Peer;
use crate::source::Source;
use crate::wire::{self, alarm_request::BeginsAt};
use quorate_broker::Amount;
use quorate_types::{NodeId, ResourceName, ShortString};
use std::time::Duration;
use tonic::Status;

fn queue_name(request: &wire::QueueRequest) -> Result<ResourceName, Status> {
    let name = ShortString::try_from(request.name.as_str())
        .map_err(|error| Status::invalid_argument(format!("queue: {error}")))?;
    Ok(ResourceName { vhost: vhost(&request.vhost)?, name })
}

fn amount(request: &wire::AlarmRequest) -> Result<Amount, Status> {
    match request.begins_at {
        Some(BeginsAt::Bytes(bytes)) => Ok(Amount::Bytes(bytes)),
        Some(BeginsAt::OfMemory(fraction)) if fraction >= 0.0 => Ok(Amount::OfMemory(fraction)),
        Some(BeginsAt::OfMemory(_)) | None => {
            Err(Status::invalid_argument("no valid amount is given"))
        }
    }
}

/// An amount in the log.
pub(crate) fn shown_amount(request: &wire::AlarmRequest) -> String {
    match request.begins_at {
        Some(BeginsAt::Bytes(bytes)) => format!("{bytes} bytes"),
        Some(BeginsAt::OfMemory(fraction)) => format!("{fraction} of the memory"),
        None => "nothing".to_owned(),
    }
}

fn node_id(id: u32) -> Result<NodeId, Status> {
    let id = u16::try_from(id).ok().filter(|id| *id > 0);
    id.map(NodeId).ok_or_else(|| Status::invalid_argument("the id of a node is from 1 to 65535"))
}

impl<S: Source> AdminService<S> {
    pub(crate) async fn delete(
        &self,
        request: &wire::QueueRequest,
    ) -> Result<wire::QueueReply, Status> {
        let name = queue_name(request)?;
        let deleted = self.source.delete_queue(&name, request.if_unused, request.if_empty).await;
        let messages = deleted.map_err(|exception| convert::refusal(&exception))?;
        Ok(wire::QueueReply { messages })
    }

    pub(crate) async fn purge(
        &self,
        request: &wire::QueueRequest,
    ) -> Result<wire::QueueReply, Status> {
        let purged = self.source.purge_queue(&queue_name(request)?).await;
        let messages = purged.map_err(|exception| convert::refusal(&exception))?;
        Ok(wire::QueueReply { messages })
    }

    pub(crate) fn set_memory(
        &self,
        request: &wire::AlarmRequest,
    ) -> Result<wire::AlarmReply, Status> {
        self.source.set_memory_high_watermark(amount(request)?);
        Ok(wire::AlarmReply {})
    }

    pub(crate) fn set_disk(
        &self,
        request: &wire::AlarmRequest,
    ) -> Result<wire::AlarmReply, Status> {
        self.source.set_disk_free_limit(amount(request)?);
        Ok(wire::AlarmReply {})
    }

    pub(crate) async fn begin_drain(
        &self,
        request: &wire::DrainRequest,
    ) -> Result<wire::DrainReply, Status> {
        let within = Duration::from_millis(request.timeout_ms).min(AWAIT_MOST);
        let left = self.source.drain(within).await;
        let left = left.map_err(|error| Status::unavailable(error.to_string()))?;
        let groups = left.groups.iter().map(|group| u32::from(group.0)).collect();
        Ok(wire::DrainReply { groups, connections: left.connections as u64 })
    }

    pub(crate) async fn end_drain(
        &self,
        _request: &wire::ReviveRequest,
    ) -> Result<wire::ReviveReply, Status> {
        self.source.revive().await;
        Ok(wire::ReviveReply {})
    }

    pub(crate) async fn forget_member(
        &self,
        request: &wire::MemberRequest,
    ) -> Result<wire::MemberReply, Status> {
        let forgotten = self.source.forget_member(node_id(request.node)?, request.running).await;
        forgotten.map_err(|error| convert::not_forgotten(&error))?;
        Ok(wire::MemberReply {})
    }

    pub(crate) async fn replace_member(
        &self,
        request: &wire::MemberRequest,
    ) -> Result<wire::MemberReply, Status> {
        let replaced = self.source.replace_member(node_id(request.node)?).await;
        replaced.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(wire::MemberReply {})
    }

    pub(crate) async fn rebalance_groups(
        &self,
        request: &wire::RebalanceRequest,
    ) -> wire::RebalanceReply {
        let own = self.source.rebalance();
        let question = |mut peer: Peer| {
            let (caller, scope) = (wire::caller(), wire::Scope::Local.into());
            let operator = request.operator.clone();
            async move {
                let request = wire::RebalanceRequest { caller, scope, operator };
                peer.rebalance(request).await.map(|reply| vec![reply.into_inner()])
            }
        };
        // At the same time: a node waits some seconds for one that does not take a leadership.
        let others = self.gather(request.scope, Vec::new(), question);
        let (own, (others, silent)) = tokio::join!(own, others);
        let kept = own.kept.iter().map(|kept| convert::kept(self.facts.id, kept));
        let mut reply = wire::RebalanceReply {
            moved: own.moved.iter().map(|group| u32::from(group.0)).collect(),
            kept: kept.collect(),
            silent,
        };
        for mut other in others {
            reply.moved.append(&mut other.moved);
            reply.kept.append(&mut other.kept);
        }
        reply.moved.sort_unstable();
        reply.kept.sort_by_key(|kept| kept.group);
        reply
    }
}
