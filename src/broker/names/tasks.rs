//! Tasks, as operators create, control and list them.

use crate::{context::CallError, views::administration::MessageTasks};
use quorate_catalog::{
    Access, Catalog, CatalogCommand, CatalogReply, Denial, Resource, TaskCommand, TaskControl,
    TaskDenial, TaskKind, TaskOrder, TaskRecord, TaskTarget, Who, refusal,
};
use quorate_types::{
    Exception, FilterError, Home, MessageFilter, QueueId, ReplyCode, ResourceName, ShortString,
    TaskId,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often a dry run is looked at until it has ended.
const LOOK: Duration = Duration::from_millis(50);

/// What an operator wants to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRequest {
    /// What is done with the messages.
    pub kind: TaskKind,
    /// The queue that they are in.
    pub queue: ResourceName,
    /// Where they go.
    pub to: TaskTarget,
    /// Which messages: names and values of the parts of a filter.
    pub filter: Vec<(ShortString, String)>,
    /// Messages a second, at most.
    pub rate: Option<u32>,
    /// Messages in all, at most.
    pub max: Option<u64>,
    /// The messages are only counted.
    pub dry_run: bool,
}

/// Why a task is not created or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The request contradicts itself.
    #[error("{0}")]
    Invalid(&'static str),
    /// A part of the filter is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Something that the request names is not there, or may not be used.
    #[error("{}", .0.explanation)]
    Refused(Exception),
    /// The catalog's refusal.
    #[error(transparent)]
    Denied(#[from] TaskDenial),
    /// The catalog does not answer.
    #[error("the operation timed out: the catalog has no majority")]
    TimedOut,
}

impl From<Exception> for TaskError {
    fn from(exception: Exception) -> Self {
        Self::Refused(exception)
    }
}

impl TaskRequest {
    /// The request that led to this order.
    fn of(order: &TaskOrder) -> Self {
        let TaskOrder { kind, queue: _, name, to, filter, rate, max, dry_run } = order.clone();
        Self { kind, queue: name, to, filter, rate, max, dry_run }
    }

    /// Checks what can be checked without the catalog.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), TaskError> {
        let mut filter = MessageFilter::default();
        let mut parts = self.filter.iter();
        parts.try_for_each(|(part, value)| filter.add_once(part.as_str(), value))?;
        if self.rate == Some(0) {
            return Err(TaskError::Invalid("rate: must be above 0"));
        }
        if self.max == Some(0) {
            return Err(TaskError::Invalid("max: must be above 0"));
        }
        match (self.kind, &self.to) {
            (TaskKind::Redrive, TaskTarget::Nowhere) => {
                Err(TaskError::Invalid("to: a redrive goes to 'original', a queue or an exchange"))
            }
            (TaskKind::Move, TaskTarget::Nowhere | TaskTarget::Original) => {
                Err(TaskError::Invalid("to: messages are moved to a queue or an exchange"))
            }
            (_, TaskTarget::Queue(name)) if *name == self.queue.name => {
                Err(TaskError::Invalid("to: is the queue that the messages are in"))
            }
            (TaskKind::Delete, _) if self.to != TaskTarget::Nowhere => {
                Err(TaskError::Invalid("to: deleted messages go nowhere"))
            }
            (TaskKind::Delete, _) if self.filter.is_empty() => Err(TaskError::Invalid(
                "filter: is missing (purging the queue deletes all messages)",
            )),
            (TaskKind::Redrive | TaskKind::Move | TaskKind::Delete, _) => Ok(()),
        }
    }

    /// The queue, if the catalog has all that the request names.
    fn find(&self, catalog: &Catalog) -> Result<QueueId, TaskError> {
        let vhost = &self.queue.vhost;
        if !catalog.has_vhost(vhost) {
            return Err(refusal::no_such_vhost(vhost).into());
        }
        let named = |name: &ShortString| ResourceName { vhost: vhost.clone(), name: name.clone() };
        let find = |name: &ResourceName| {
            catalog.queue_by_name(name).ok_or_else(|| refusal::no_queue(name))
        };
        let entry = find(&self.queue)?;
        if entry.owner.is_some() || matches!(entry.id.home, Home::Node(_)) {
            return Err(TaskError::Invalid("queue: belongs to a connection"));
        }
        if catalog.delayed_exchange_of(&self.queue).is_some() {
            return Err(TaskError::Invalid("queue: is that of a delayed exchange"));
        }
        match &self.to {
            TaskTarget::Queue(name) if catalog.delayed_exchange_of(&named(name)).is_some() => {
                return Err(TaskError::Invalid("to: is the queue of a delayed exchange"));
            }
            TaskTarget::Queue(name) => drop(find(&named(name))?),
            TaskTarget::Exchange(name) if !name.is_empty() => {
                catalog.check_publishable(&named(name))?;
            }
            TaskTarget::Exchange(_) | TaskTarget::Nowhere | TaskTarget::Original => {}
        }
        Ok(entry.id)
    }
}

impl MessageTasks<'_> {
    /// Whether a user may have such a task carried out: it needs what it would need to consume the
    /// queue, and to publish to where the messages go.
    ///
    /// # Errors
    /// 403.
    pub fn check(&self, user: &ShortString, request: &TaskRequest) -> Result<(), Exception> {
        let catalog = self.0.base.catalog.read();
        let who = Who { vhost: &request.queue.vhost, user };
        catalog.check_access(who, Access::Read, Resource::Queue(&request.queue.name))?;
        let exchange = match &request.to {
            TaskTarget::Nowhere => return Ok(()),
            TaskTarget::Original | TaskTarget::Queue(_) => &ShortString::EMPTY,
            TaskTarget::Exchange(exchange) => exchange,
        };
        catalog.check_access(who, Access::Write, Resource::Exchange(exchange))?;
        // Topic permissions are about keys, which differ from message to message.
        if matches!(request.to, TaskTarget::Exchange(_)) && catalog.has_topic_rights(who) {
            let text = "a user with topic permissions cannot have messages moved to an exchange";
            return Err(Exception::new(ReplyCode::AccessRefused, text));
        }
        Ok(())
    }

    /// Whether a user may control a task: as if the user created it.
    ///
    /// # Errors
    /// 403.
    pub fn check_control(&self, user: &ShortString, task: &TaskRecord) -> Result<(), Exception> {
        self.check(user, &TaskRequest::of(&task.order))
    }

    /// Whether a user may see a task: as if it consumed the queue.
    #[must_use]
    pub fn may_see(&self, user: &ShortString, task: &TaskRecord) -> bool {
        let name = &task.order.name;
        let who = Who { vhost: &name.vhost, user };
        let catalog = self.0.base.catalog.read();
        catalog.check_access(who, Access::Read, Resource::Queue(&name.name)).is_ok()
    }

    /// Creates a task; returns it as it was created.
    ///
    /// # Errors
    /// What is wrong with the request, or the lack of a majority.
    pub async fn create(
        &self,
        request: TaskRequest,
        by: ShortString,
    ) -> Result<TaskRecord, TaskError> {
        request.check()?;
        let base = &self.0.base;
        // The queue may have been declared through another node a moment ago.
        let found = request.find(&base.catalog.read());
        let queue = match found {
            Ok(queue) => queue,
            Err(_) if base.catalog_client.read().await => request.find(&base.catalog.read())?,
            Err(error) => return Err(error),
        };
        let TaskRequest { kind, queue: name, to, filter, rate, max, dry_run } = request;
        let order = TaskOrder { kind, queue, name, to, filter, rate, max, dry_run };
        let nonce = quorate_rpc::chance::random();
        let at = base.context.settings.wall.now();
        self.change(TaskCommand::Create { nonce, order, by, at }).await?;
        // It may have ended by now, but not have been removed.
        let created = base.catalog.read().task_of_nonce(nonce).cloned();
        created.ok_or(TaskError::TimedOut)
    }

    /// A task; one that this node's copy of the catalog does not have may have been created through
    /// another node a moment ago.
    pub async fn find(&self, id: TaskId) -> Option<TaskRecord> {
        let base = &self.0.base;
        let find = || base.catalog.read().task(id).cloned();
        let found = find();
        if found.is_none() && base.catalog_client.read().await {
            return find();
        }
        found
    }

    /// Pauses, resumes or cancels a task; returns it.
    ///
    /// # Errors
    /// There is no such task, or it has ended; or the lack of a majority.
    pub async fn control(
        &self,
        task: TaskId,
        control: TaskControl,
    ) -> Result<TaskRecord, TaskError> {
        let at = self.0.base.context.settings.wall.now();
        self.change(TaskCommand::Control { task, control, at }).await?;
        let changed = self.0.base.catalog.read().task(task).cloned();
        changed.ok_or(TaskError::Denied(TaskDenial::NoTask { task }))
    }

    /// Waits until a task has ended; returns it as it is then, or after that time.
    pub async fn await_end(&self, created: TaskRecord, most: Duration) -> TaskRecord {
        let until = Instant::now() + most;
        let mut latest = created;
        while latest.state.is_active() && Instant::now() < until {
            sleep(LOOK).await;
            let Some(task) = self.0.base.catalog.read().task(latest.id).cloned() else { break };
            latest = task;
        }
        latest
    }

    async fn change(&self, command: TaskCommand) -> Result<(), TaskError> {
        match self.0.base.catalog_client.propose(CatalogCommand::Tasks(command)).await {
            Ok((_, CatalogReply::Done)) => Ok(()),
            Ok((_, CatalogReply::Denied(Denial::Task(denial)))) => Err(denial.into()),
            Ok((_, CatalogReply::Refused(exception))) => Err(exception.into()),
            Ok((_, reply)) => {
                tracing::error!(?reply, "unexpected reply of the catalog");
                Err(TaskError::TimedOut)
            }
            Err(CallError::TimedOut | CallError::SessionEnded) => Err(TaskError::TimedOut),
        }
    }

    /// All tasks, as this node's copy of the catalog has them.
    #[must_use]
    pub fn all(&self) -> Vec<TaskRecord> {
        self.0.base.catalog.read().tasks().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: TaskKind, to: TaskTarget, filter: &[(&'static str, &str)]) -> TaskRequest {
        let name = ShortString::from_static;
        TaskRequest {
            kind,
            queue: ResourceName { vhost: name("/"), name: name("parking") },
            to,
            filter: filter.iter().map(|(part, it)| (name(part), (*it).to_owned())).collect(),
            rate: None,
            max: None,
            dry_run: false,
        }
    }

    #[test]
    fn a_request_that_contradicts_itself_is_refused_by_name() {
        use TaskKind::{Delete, Move, Redrive};
        let queue = |name| TaskTarget::Queue(ShortString::from_static(name));
        let reason = [("reason", "expired")];
        assert_eq!(request(Redrive, TaskTarget::Original, &[]).check(), Ok(()));
        assert_eq!(request(Move, queue("q"), &reason).check(), Ok(()));
        assert_eq!(request(Delete, TaskTarget::Nowhere, &reason).check(), Ok(()));
        for (wrong, part) in [
            (request(Redrive, TaskTarget::Nowhere, &[]), "to:"),
            (request(Move, TaskTarget::Original, &[]), "to:"),
            (request(Move, queue("parking"), &[]), "to:"),
            (request(Delete, queue("q"), &reason), "to:"),
            (request(Delete, TaskTarget::Nowhere, &[]), "filter:"),
            (request(Move, queue("q"), &[("reason", "age")]), "filter reason:"),
            (TaskRequest { rate: Some(0), ..request(Move, queue("q"), &[]) }, "rate:"),
            (TaskRequest { max: Some(0), ..request(Move, queue("q"), &[]) }, "max:"),
        ] {
            let told = wrong.check().map_err(|error| error.to_string());
            assert!(told.as_ref().is_err_and(|told| told.starts_with(part)), "{told:?}");
        }
    }
}
