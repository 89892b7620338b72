//! How many tasks there may be, and how large they may be: nobody shall take all of them.

use crate::{
    denial::TaskDenial,
    machine::Catalog,
    task::{TaskOrder, TaskRecord},
};

/// Tasks that have not ended, at most.
pub const TASKS_MAX: usize = 100;
/// Tasks of one virtual host that have not ended, at most: others shall be able to have some.
pub const VHOST_TASKS_MAX: usize = 40;
/// Tasks of one queue that have not ended or have messages under way, at most.
pub const QUEUE_TASKS_MAX: usize = 8;
/// Parts of a filter, at most.
const FILTER_PARTS_MAX: usize = 32;
/// Bytes of a filter, at most.
const FILTER_BYTES_MAX: usize = 8_192;

impl Catalog {
    /// Whether a task may be created.
    pub(crate) fn check_task(&self, order: &TaskOrder) -> Result<(), TaskDenial> {
        if self.queue_by_id(order.queue).is_none() {
            return Err(TaskDenial::NoQueue);
        }
        let count =
            |counts: &dyn Fn(&TaskRecord) -> bool| self.tasks().filter(|task| counts(task)).count();
        if count(&|task| task.state.is_active()) >= TASKS_MAX {
            return Err(TaskDenial::TooMany { most: TASKS_MAX as u32 });
        }
        let is_of_vhost = |task: &TaskRecord| task.order.name.vhost == order.name.vhost;
        if count(&|task| task.state.is_active() && is_of_vhost(task)) >= VHOST_TASKS_MAX {
            return Err(TaskDenial::TooManyOfVhost { most: VHOST_TASKS_MAX as u32 });
        }
        // The group keeps the progress of a cancelled task until all has arrived.
        let is_kept = |task: &TaskRecord| task.state.is_active() || task.counts.under_way > 0;
        if count(&|task| task.order.queue == order.queue && is_kept(task)) >= QUEUE_TASKS_MAX {
            return Err(TaskDenial::TooManyOfQueue { most: QUEUE_TASKS_MAX as u32 });
        }
        // What the parts mean is not looked at here: a later release may know more of them (MEM 15).
        let bytes =
            order.filter.iter().map(|(part, value)| part.len() + value.len()).sum::<usize>();
        if order.filter.len() > FILTER_PARTS_MAX || bytes > FILTER_BYTES_MAX {
            return Err(TaskDenial::Filter);
        }
        Ok(())
    }
}
