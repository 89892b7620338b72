//! The service of tasks, which `quorate ctl` calls: requests are parsed here, and proposed as typed
//! commands.

use crate::admin::{check, vhost};
use crate::audit::{Operator, within};
use crate::convert::refusal;
use crate::wire::{self, task_target::To, tasks_server::Tasks};
use quorate_broker::{Broker, TaskError, TaskRequest};
use quorate_catalog::{TaskControl, TaskDenial, TaskKind, TaskRecord, TaskTarget};
use quorate_types::{ResourceName, ShortString, TaskId};
use tonic::{Request, Response, Status};

/// The service of one node: every node can change the catalog.
#[derive(Clone, Debug)]
pub struct TaskService {
    broker: Broker,
}

impl TaskService {
    /// The service of one node, to be mounted at the rpc port.
    #[must_use]
    pub fn new(broker: Broker) -> Self {
        Self { broker }
    }

    async fn create(
        &self,
        request: wire::CreateTaskRequest,
        operator: &Operator,
    ) -> Result<wire::Task, Status> {
        let by = ShortString::try_from(operator.name()).unwrap_or_default();
        let created = self.broker.tasks().create(parse(request)?, by).await;
        created.map(|task| task_message(&task)).map_err(|error| status(&error))
    }
}

fn short(what: &str, text: &str) -> Result<ShortString, Status> {
    ShortString::try_from(text)
        .map_err(|error| Status::invalid_argument(format!("{what}: {error}")))
}

fn target(to: Option<wire::TaskTarget>) -> Result<TaskTarget, Status> {
    Ok(match to.and_then(|target| target.to) {
        None => TaskTarget::Nowhere,
        Some(To::Original(_)) => TaskTarget::Original,
        Some(To::Queue(name)) => TaskTarget::Queue(short("to", &name)?),
        Some(To::Exchange(name)) => TaskTarget::Exchange(short("to", &name)?),
    })
}

fn target_message(to: &TaskTarget) -> Option<wire::TaskTarget> {
    let to = match to {
        TaskTarget::Nowhere => return None,
        TaskTarget::Original => To::Original(true),
        TaskTarget::Queue(name) => To::Queue(name.to_string()),
        TaskTarget::Exchange(name) => To::Exchange(name.to_string()),
    };
    Some(wire::TaskTarget { to: Some(to) })
}

fn parse(request: wire::CreateTaskRequest) -> Result<TaskRequest, Status> {
    let kind = TaskKind::ALL.into_iter().find(|kind| kind.name() == request.kind);
    let kind = kind.ok_or_else(|| {
        Status::invalid_argument(format!("kind: there is no kind '{}' of tasks", request.kind))
    })?;
    let part = |part: wire::FilterPart| Ok((short("filter", &part.name)?, part.value));
    let name = short("queue", &request.queue)?;
    Ok(TaskRequest {
        kind,
        queue: ResourceName { vhost: vhost(&request.vhost)?, name },
        to: target(request.to)?,
        filter: request.filter.into_iter().map(part).collect::<Result<_, Status>>()?,
        rate: request.rate,
        max: request.max,
        dry_run: request.dry_run,
    })
}

fn task_message(task: &TaskRecord) -> wire::Task {
    let TaskRecord { id, nonce: _, order, state, created_by, created_at, ended_at, counts } = task;
    let part = |(part, value): &(ShortString, String)| wire::FilterPart {
        name: part.to_string(),
        value: value.clone(),
    };
    wire::Task {
        id: id.0,
        kind: order.kind.name().to_owned(),
        vhost: order.name.vhost.to_string(),
        queue: order.name.name.to_string(),
        to: target_message(&order.to),
        filter: order.filter.iter().map(part).collect(),
        rate: order.rate,
        max: order.max,
        dry_run: order.dry_run,
        state: state.name().to_owned(),
        created_by: created_by.to_string(),
        created_at: created_at.0,
        ended_at: ended_at.map(|at| at.0),
        taken: counts.taken,
        moved: counts.moved,
        under_way: counts.under_way,
        skipped: counts.skipped,
        no_target: counts.no_target,
    }
}

fn status(error: &TaskError) -> Status {
    let text = error.to_string();
    match error {
        TaskError::Invalid(_) | TaskError::Filter(_) => Status::invalid_argument(text),
        TaskError::Refused(exception) => refusal(exception),
        TaskError::Denied(TaskDenial::NoTask { .. } | TaskDenial::NoQueue) => {
            Status::not_found(text)
        }
        TaskError::Denied(TaskDenial::Filter) => Status::invalid_argument(text),
        TaskError::Denied(
            TaskDenial::TooEarly { .. }
            | TaskDenial::Ended { .. }
            | TaskDenial::TooMany { .. }
            | TaskDenial::TooManyOfVhost { .. }
            | TaskDenial::TooManyOfQueue { .. },
        ) => Status::unavailable(text),
        TaskError::TimedOut => Status::unavailable(text),
    }
}

#[tonic::async_trait]
impl Tasks for TaskService {
    async fn create_task(
        &self,
        request: Request<wire::CreateTaskRequest>,
    ) -> Result<Response<wire::Task>, Status> {
        let operator = Operator::of(&request);
        let request = request.into_inner();
        check(request.caller)?;
        let (verb, object) = (request.kind.clone(), within(&request.vhost, &request.queue));
        let created = self.create(request, &operator).await;
        operator.log(&verb, &object, &created);
        created.map(Response::new)
    }

    async fn list_tasks(
        &self,
        request: Request<wire::TasksRequest>,
    ) -> Result<Response<wire::TaskList>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let task = TaskId(request.id);
        let tasks = if request.id == 0 {
            self.broker.tasks().all()
        } else {
            let found = self.broker.tasks().find(task).await;
            let none = || Status::not_found(TaskDenial::NoTask { task }.to_string());
            vec![found.ok_or_else(none)?]
        };
        let tasks = tasks.iter().map(task_message).collect();
        Ok(Response::new(wire::TaskList { tasks }))
    }

    async fn control_task(
        &self,
        request: Request<wire::ControlTaskRequest>,
    ) -> Result<Response<wire::Task>, Status> {
        let operator = Operator::of(&request);
        let request = request.into_inner();
        check(request.caller)?;
        let control = TaskControl::ALL.into_iter().find(|it| it.name() == request.control);
        let control = control.ok_or_else(|| Status::invalid_argument("control: is not known"))?;
        let id = TaskId(request.id);
        let changed = self.broker.tasks().control(id, control).await;
        let changed = changed.map_err(|error| status(&error));
        operator.log(&format!("{}_task", control.name()), &id.to_string(), &changed);
        changed.map(|task| Response::new(task_message(&task)))
    }
}
