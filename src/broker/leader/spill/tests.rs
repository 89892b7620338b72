//! Bodies in memory and in files.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use proptest::{collection::vec, prelude::*};

impl Bodies {
    /// Neither memory nor files hold a body.
    pub(crate) fn is_empty(&self) -> bool {
        self.memory_bytes == 0 && self.files.is_empty()
    }
}

fn body(number: u8) -> Bytes {
    Bytes::from(vec![number; 1000])
}

#[test]
fn what_is_beyond_the_budget_goes_to_disk_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut bodies = Bodies::new(folder.path().into(), 2500);
    let kept: Vec<_> = (0..6).map(|number| bodies.keep(&body(number))).collect();
    let in_memory = kept.iter().filter(|kept| matches!(kept, Kept::Memory(_))).count();
    assert_eq!((in_memory, bodies.memory_bytes), (2, 2000));
    for (number, kept) in (0..).zip(&kept) {
        assert_eq!(bodies.read(kept), StoredMessage::Here(body(number)));
    }
    kept.into_iter().for_each(|kept| bodies.forget(kept));
    assert_eq!((bodies.memory_bytes, bodies.files.len()), (0, 0));
    assert!(matches!(bodies.keep(&body(9)), Kept::Memory(_)), "there is room again");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files have no names");
}

#[test]
fn what_cannot_be_written_stays_in_memory() {
    let mut bodies = Bodies::new("/nowhere/at/all".into(), 500);
    let kept = bodies.keep(&body(7));
    assert_eq!(bodies.read(&kept), StoredMessage::Here(body(7)));
    bodies.forget(kept);
    assert_eq!(bodies.memory_bytes, 0);
}

proptest! {
    /// A stored body is read unchanged, in whatever order others are dropped. The memory budget is
    /// not exceeded while the disk takes the rest, and a file is removed with its last body.
    #[test]
    fn bodies_come_back_whatever_is_forgotten(
        steps in vec(prop_oneof![2 => (0..600_usize).prop_map(Ok), 1 => any::<usize>().prop_map(Err)], 1..80),
        exclusive_memory_bytes in 0..2_000_usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut bodies = Bodies::new(folder.path().into(), exclusive_memory_bytes);
        let mut kept: Vec<(Bytes, Kept)> = Vec::new();
        for (number, step) in (0..u8::MAX).zip(steps) {
            match step {
                Ok(bytes) => {
                    let body = Bytes::from(vec![number; bytes]);
                    kept.push((body.clone(), bodies.keep(&body)));
                }
                Err(at) if !kept.is_empty() => bodies.forget(kept.swap_remove(at % kept.len()).1),
                Err(_) => {}
            }
            for (body, kept) in &kept {
                prop_assert_eq!(bodies.read(kept), StoredMessage::Here(body.clone()));
                prop_assert_eq!(kept.bytes(), body.len());
            }
            let in_memory = |it: &&(Bytes, Kept)| matches!(it.1, Kept::Memory(_));
            let memory: usize = kept.iter().filter(in_memory).map(|(body, _)| body.len()).sum();
            prop_assert_eq!(bodies.memory_bytes, memory);
            prop_assert!(memory <= exclusive_memory_bytes);
            let in_files = kept.len() - kept.iter().filter(in_memory).count();
            prop_assert_eq!(bodies.files.is_empty(), in_files == 0);
        }
    }
}
