//! Policies and runtime parameters, as operators set and clear them.

use crate::{
    context::CallError,
    names::queues::Queues,
    views::administration::{Operator, Views},
};
use quorate_catalog::{
    CatalogCommand, CatalogReply, Denial, ParameterName, ParameterRecord, PolicyKind, PolicyName,
    PolicyRecord, refusal,
};
use quorate_types::{CatalogIndex, Exception, ReplyCode, VhostName};
use std::sync::Arc;

impl Operator<'_> {
    /// Sets a policy: in force when this returns, unless a group has no leader (DESIGN §7).
    ///
    /// # Errors
    /// 404 without the virtual host; 541 when the catalog does not answer.
    pub async fn set_policy(&self, policy: PolicyRecord) -> Result<(), Exception> {
        let index = self.0.queues.change_catalog(CatalogCommand::SetPolicy(policy)).await?;
        self.0.queues.await_policies(index).await;
        Ok(())
    }

    /// Clears a policy, likewise.
    ///
    /// # Errors
    /// 406 when there is none (POL-25); 541 when the catalog does not answer.
    pub async fn clear_policy(&self, name: PolicyName) -> Result<(), Exception> {
        self.0.queues.read_catalog().await?;
        if self.0.base.catalog.read().policy(&name).is_none() {
            return Err(refusal::no_parameter());
        }
        let index = self.0.queues.change_catalog(CatalogCommand::ClearPolicy(name)).await?;
        self.0.queues.await_policies(index).await;
        Ok(())
    }
}

impl Views<'_> {
    /// The policies of a virtual host, in the order of their names.
    ///
    /// # Errors
    /// 404 without the virtual host.
    pub fn policies(
        &self,
        kind: PolicyKind,
        vhost: &VhostName,
    ) -> Result<Vec<PolicyRecord>, Exception> {
        let catalog = self.0.base.catalog.read();
        if !catalog.has_vhost(vhost) {
            return Err(refusal::no_such_vhost(vhost));
        }
        Ok(catalog.policies(kind, vhost).into_iter().cloned().collect())
    }
}

impl Operator<'_> {
    /// Sets a runtime parameter; one that queues' settings follow is in force when this returns, as
    /// policies are.
    ///
    /// # Errors
    /// 404 without the virtual host; 541 when the catalog does not answer.
    pub async fn set_parameter(&self, parameter: ParameterRecord) -> Result<(), Exception> {
        let of_settings = parameter.name.is_of_settings();
        let index = self.0.queues.change_catalog(parameter.set()).await?;
        if of_settings {
            self.0.queues.await_policies(index).await;
        }
        Ok(())
    }

    /// Clears a runtime parameter.
    ///
    /// # Errors
    /// 406 when there is none; 541 when the catalog does not answer.
    pub async fn clear_parameter(&self, name: ParameterName) -> Result<(), Exception> {
        self.0.queues.read_catalog().await?;
        if self.0.base.catalog.read().parameter(&name).is_none() {
            return Err(refusal::no_parameter());
        }
        let of_settings = name.is_of_settings();
        let index = self.0.queues.change_catalog(name.clear()).await?;
        if of_settings {
            self.0.queues.await_policies(index).await;
        }
        Ok(())
    }
}

impl Views<'_> {
    /// The runtime parameters of a virtual host; without one, the global ones.
    ///
    /// # Errors
    /// 404 without the virtual host.
    pub fn parameters(&self, of: Option<&str>) -> Result<Vec<ParameterRecord>, Exception> {
        let catalog = self.0.base.catalog.read();
        // Too long a name is nobody's.
        let of = of.map(|of| VhostName::try_from(of).unwrap_or_default());
        match &of {
            Some(vhost) if !catalog.has_vhost(vhost) => Err(refusal::no_such_vhost(vhost)),
            _ => Ok(catalog.parameters_of(of.as_ref())),
        }
    }
}

impl Queues {
    /// Proposes a command of an operator, and waits until all routing nodes have applied it; the index of its entry.
    async fn change_catalog(
        self: &Arc<Self>,
        command: CatalogCommand,
    ) -> Result<CatalogIndex, Exception> {
        match self.base.catalog_client.propose(command).await {
            Ok((index, CatalogReply::Done)) => {
                self.base.lease.barrier(index).await.map_err(|_| no_majority())?;
                Ok(index)
            }
            Ok((_, CatalogReply::Refused(exception))) => Err(exception),
            Ok((_, CatalogReply::Denied(Denial::NoSuchVhost(vhost)))) => {
                Err(refusal::no_such_vhost(&vhost))
            }
            Ok((_, reply)) => {
                tracing::error!(?reply, "unexpected reply of the catalog");
                Err(Exception::new(ReplyCode::InternalError, "unexpected answer of the catalog"))
            }
            Err(CallError::TimedOut | CallError::SessionEnded) => Err(no_majority()),
        }
    }

    /// Brings this node's copy of the catalog up to date, so that what it lacks is not there, and no other node says
    /// that it is.
    pub(crate) async fn read_catalog(&self) -> Result<(), Exception> {
        let is_read = self.base.catalog_client.read().await;
        let agreed = is_read && self.base.lease.agreed().await.is_ok();
        if agreed { Ok(()) } else { Err(no_majority()) }
    }

    /// Waits until a change of policies is in force: every node routes by it, every queue has it.
    pub(crate) async fn await_policies(self: &Arc<Self>, index: CatalogIndex) {
        let (known, in_force) =
            tokio::join!(self.base.lease.barrier(index), self.configurer.in_force(index));
        if known.is_err() {
            tracing::warn!(%index, "not all nodes confirmed a policy change in time");
        }
        if !in_force {
            tracing::warn!(%index, "not all queues confirmed a policy change in time");
        }
    }
}

fn no_majority() -> Exception {
    let text = "the operation timed out: the catalog has no majority";
    Exception::new(ReplyCode::InternalError, text)
}
