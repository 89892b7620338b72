//! Queues that this node is making: one at a time of each name, and only so many, since each is
//! finished whatever becomes of its client (NAM 2), and none is without a majority.
//!
//! A name may be added to the catalog when its queue has already ended: if it was proposed more
//! than once, or if it may belong to a former virtual host. Such a name is followed by a query of
//! the group, and a queue that has ended loses the name again at once (NAM 2). At most 1,024 queues
//! are being made on a node at a time. A client that declares a name that is being made waits, then
//! the name is looked up again.

use parking_lot::Mutex;
use quorate_types::ResourceName;
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::{Semaphore, watch};

/// Queues that are being made at once. More wait for their turn, as long as operations may take.
const MAKING_MAX: usize = 1_024;

/// What is being made.
#[derive(Debug)]
pub(crate) struct Making {
    /// Each with a channel that ends when it is done.
    names: Mutex<BTreeMap<ResourceName, watch::Receiver<()>>>,
    pub(crate) room: Arc<Semaphore>,
}

impl Default for Making {
    fn default() -> Self {
        Self { names: Mutex::default(), room: Arc::new(Semaphore::new(MAKING_MAX)) }
    }
}

/// The making of a queue of one name, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    making: Arc<Making>,
    name: ResourceName,
    _done: watch::Sender<()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.making.names.lock().remove(&self.name);
    }
}

impl Making {
    /// Begins to make a queue of that name; otherwise waits until whoever makes one is done.
    pub(crate) async fn begin(self: &Arc<Self>, name: &ResourceName) -> Option<Turn> {
        let mut other = {
            let mut names = self.names.lock();
            match names.get(name) {
                Some(other) => other.clone(),
                None => {
                    let (done, watched) = watch::channel(());
                    names.insert(name.clone(), watched);
                    let (making, name) = (Arc::clone(self), name.clone());
                    return Some(Turn { making, name, _done: done });
                }
            }
        };
        while other.changed().await.is_ok() {}
        None
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use quorate_types::ShortString;
    use std::time::Duration;
    use tokio::time::timeout;

    fn name(name: &'static str) -> ResourceName {
        let (vhost, name) = (ShortString::from_static("/"), ShortString::from_static(name));
        ResourceName { vhost, name }
    }

    #[tokio::test]
    async fn one_queue_of_a_name_is_made_at_a_time() {
        let making = Arc::new(Making::default());
        let first = making.begin(&name("a")).await.unwrap();
        assert!(making.begin(&name("b")).await.is_some(), "another name waits for nobody");
        let second = tokio::spawn({
            let making = Arc::clone(&making);
            async move { making.begin(&name("a")).await.is_none() }
        });
        let waits = timeout(Duration::from_millis(50), making.begin(&name("a"))).await;
        assert!(waits.is_err(), "the first is not done");
        assert_eq!(making.names.lock().len(), 1, "who has given up leaves nothing behind");
        drop(first);
        assert!(second.await.unwrap(), "the one that was made is to be looked at");
        assert!(making.begin(&name("a")).await.is_some());
        assert!(making.names.lock().is_empty());
    }
}
