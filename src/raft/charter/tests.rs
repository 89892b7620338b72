//! The charter under lost directories, restarts and late messages.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use proptest::{collection::vec, prelude::*};

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

fn list() -> BTreeSet<NodeId> {
    NODES.into()
}

fn charter(founder: u64, number: u32, directories: [u64; 3]) -> Charter {
    let directories = NODES.into_iter().zip(directories.map(Incarnation)).collect();
    Charter { founder: Incarnation(founder), number, directories }
}

fn hello(directory: u64, founding: Founding) -> FoundingHello {
    FoundingHello { directory: Incarnation(directory), nodes: list(), founding }
}

#[test]
fn mem_02_a_directory_takes_the_charters_of_one_founder_only() {
    let (first, me) = (charter(1, 1, [1, 2, 3]), (NodeId(2), Incarnation(2)));
    let take = |present: &Founding, charter: &Charter| take_charter(present, me, &list(), charter);
    let taken = Founding::Taken(first.clone());
    assert_eq!(take(&Founding::Empty, &first), Ok(taken.clone()));
    assert_eq!(take(&taken, &first), Ok(taken.clone()), "again");
    let second = charter(1, 2, [1, 2, 33]);
    assert_eq!(take(&taken, &second), Ok(Founding::Taken(second.clone())));
    let late = take(&Founding::Taken(second.clone()), &first);
    assert_eq!(late, Err(CharterDenial::Late));
    assert_eq!(take(&taken, &charter(11, 9, [11, 2, 3])), Err(CharterDenial::OtherFounder));
    let formed = Founding::Formed(Some(first.clone()));
    assert_eq!(take(&formed, &first), Ok(formed.clone()));
    assert_eq!(take(&formed, &second), Err(CharterDenial::Formed));
    assert_eq!(take(&Founding::Formed(None), &first), Err(CharterDenial::Formed));
    let others = [charter(1, 1, [1, 22, 3]), charter(2, 1, [1, 2, 3])];
    for other in others {
        assert_eq!(take(&Founding::Empty, &other), Err(CharterDenial::OtherNodes), "{other:?}");
    }
    let twice = take(&Founding::Empty, &charter(1, 1, [1, 2, 1]));
    assert_eq!(twice, Err(CharterDenial::SameDirectory));
    let two: BTreeSet<NodeId> = [NodeId(1), NodeId(2)].into();
    let of_three = take_charter(&Founding::Empty, me, &two, &first);
    assert_eq!(of_three, Err(CharterDenial::OtherNodes));
}

#[test]
fn mem_02_the_founder_waits_for_all_and_begins_anew_when_a_directory_is_lost() {
    let me = (NodeId(1), Incarnation(1));
    let next = |present: &Founding, others: &[(u16, FoundingHello)]| {
        let others = others.iter().map(|(node, hello)| (NodeId(*node), hello.clone())).collect();
        next_founding_step(present, me, &list(), &others)
    };
    let wait = FoundingStep::Wait;
    let two = || (2, hello(2, Founding::Empty));
    let alone = next(&Founding::Empty, &[two()]);
    assert_eq!(alone, wait(FoundingWait::Missing(vec![NodeId(3)])), "a majority is not enough");
    let formed = next(&Founding::Empty, &[two(), (3, hello(3, Founding::Formed(None)))]);
    assert_eq!(formed, wait(FoundingWait::Formed(vec![NodeId(3)])));
    let first = charter(1, 1, [1, 2, 3]);
    let taken = Founding::Taken(first.clone());
    let three = || (3, hello(3, Founding::Empty));
    assert_eq!(next(&Founding::Empty, &[two(), three()]), FoundingStep::Store(taken.clone()));
    assert_eq!(next(&taken, &[two(), three()]), FoundingStep::Ask(first.clone()));
    let both = [(2, hello(2, taken.clone())), (3, hello(3, taken.clone()))];
    let is_formed = Founding::Formed(Some(first.clone()));
    assert_eq!(next(&taken, &both), FoundingStep::Store(is_formed.clone()));
    assert_eq!(next(&is_formed, &[]), FoundingStep::Formed);
    let lost = [both[0].clone(), (3, hello(33, Founding::Empty))];
    let second = Founding::Taken(charter(1, 2, [1, 2, 33]));
    assert_eq!(next(&taken, &lost), FoundingStep::Store(second));
    let others = both.into_iter().map(|(node, hello)| (NodeId(node), hello)).collect();
    let anew = (NodeId(1), Incarnation(11));
    let founder_lost = next_founding_step(&Founding::Empty, anew, &list(), &others);
    assert_eq!(founder_lost, wait(FoundingWait::OtherFounder(vec![NodeId(2), NodeId(3)])));
    let other = FoundingHello { nodes: [NodeId(1), NodeId(2)].into(), ..two().1 };
    let other = next(&Founding::Empty, &[(2, other), three()]);
    assert_eq!(other, wait(FoundingWait::OtherNodes(vec![NodeId(2)])));
    for (directory, shared) in [(2, vec![NodeId(2), NodeId(3)]), (1, vec![NodeId(3)])] {
        let copied = next(&Founding::Empty, &[two(), (3, hello(directory, Founding::Empty))]);
        assert_eq!(copied, wait(FoundingWait::SameDirectory(shared)));
    }
}

#[test]
fn mem_02_the_others_learn_that_their_charter_is_formed() {
    let me = (NodeId(2), Incarnation(2));
    let first = charter(1, 1, [1, 2, 3]);
    let next = |present: &Founding, told: Founding| {
        next_founding_step(present, me, &list(), &[(NodeId(1), hello(1, told))].into())
    };
    let (taken, formed) = (Founding::Taken(first.clone()), Founding::Formed(Some(first)));
    let waits = FoundingStep::Wait(FoundingWait::Founder(NodeId(1)));
    assert_eq!(next(&taken, taken.clone()), waits, "taken by all it may be, formed it is not");
    assert_eq!(next(&taken, formed.clone()), FoundingStep::Store(formed.clone()));
    let of_others = FoundingStep::Wait(FoundingWait::Formed(vec![NodeId(1)]));
    assert_eq!(next(&taken, Founding::Formed(Some(charter(1, 2, [1, 22, 3])))), of_others);
    assert_eq!(next(&Founding::Empty, formed), of_others);
}

#[derive(Clone, Copy, Debug)]
enum Action {
    /// A node hears one other one, or does not reach it.
    Hear(usize, usize),
    /// It acts on what it has heard since its start.
    Step(usize),
    /// A charter under way arrives; it may arrive again.
    Arrive(usize),
    /// A process ends and starts again.
    Restart(usize),
    /// A node loses its directory.
    Lose(usize),
}

/// A directory, and what its process has heard.
#[derive(Clone, Debug)]
struct Directory {
    id: Incarnation,
    founding: Founding,
    heard: BTreeMap<NodeId, FoundingHello>,
}

struct World {
    nodes: [Directory; 3],
    made: u64,
    under_way: Vec<(usize, Charter)>,
    formed: Vec<Charter>,
    /// Directories of node 1 that were lost.
    founders_lost: usize,
}

impl World {
    fn new() -> Self {
        let nodes = [1, 2, 3].map(empty);
        Self { nodes, made: 3, under_way: Vec::new(), formed: Vec::new(), founders_lost: 0 }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Hear(of, from) if of != from => {
                let Directory { id, founding, .. } = self.nodes[from].clone();
                let told = FoundingHello { directory: id, nodes: list(), founding };
                self.nodes[of].heard.insert(NODES[from], told);
            }
            Action::Hear(..) => {}
            Action::Step(at) => self.step(at),
            Action::Arrive(which) if !self.under_way.is_empty() => {
                let (at, charter) = self.under_way[which % self.under_way.len()].clone();
                let Directory { id, founding, .. } = &self.nodes[at];
                if let Ok(taken) = take_charter(founding, (NODES[at], *id), &list(), &charter) {
                    self.store(at, taken);
                }
            }
            Action::Arrive(_) => {}
            Action::Restart(at) => self.nodes[at].heard.clear(),
            Action::Lose(at) => {
                self.made += 1;
                self.founders_lost += usize::from(at == 0);
                self.nodes[at] = empty(self.made);
            }
        }
    }

    fn step(&mut self, at: usize) {
        let Directory { id, founding, heard } = &self.nodes[at];
        match next_founding_step(founding, (NODES[at], *id), &list(), heard) {
            FoundingStep::Wait(_) | FoundingStep::Formed => {}
            FoundingStep::Store(founding) => self.store(at, founding),
            FoundingStep::Ask(charter) => {
                let others = (0..3).filter(|other| *other != at);
                self.under_way.extend(others.map(|other| (other, charter.clone())));
            }
        }
    }

    fn store(&mut self, at: usize, founding: Founding) {
        if let Founding::Formed(Some(charter)) = &founding {
            for directory in &self.nodes {
                if let Founding::Formed(Some(other)) = &directory.founding {
                    assert_eq!(other, charter, "a second cluster beside a survivor");
                }
            }
            if !self.formed.contains(charter) {
                self.formed.push(charter.clone());
            }
        }
        self.nodes[at].founding = founding;
    }

    /// All stay up, and nothing is lost any more.
    fn settle(&mut self) {
        for _ in 0..20 {
            for at in 0..3 {
                (0..3).for_each(|from| self.act(Action::Hear(at, from)));
                self.step(at);
                (0..self.under_way.len()).for_each(|which| self.act(Action::Arrive(which)));
            }
        }
    }
}

fn empty(id: u64) -> Directory {
    Directory { id: Incarnation(id), founding: Founding::Empty, heard: BTreeMap::new() }
}

fn action() -> impl Strategy<Value = Action> {
    let node = || 0..3_usize;
    prop_oneof![
        8 => (node(), node()).prop_map(|(of, from)| Action::Hear(of, from)),
        6 => node().prop_map(Action::Step),
        6 => (0..64_usize).prop_map(Action::Arrive),
        1 => node().prop_map(Action::Restart),
        1 => node().prop_map(Action::Lose),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn mem_02_never_a_second_cluster_and_always_one_in_the_end(actions in vec(action(), 0..120)) {
        let mut world = World::new();
        actions.into_iter().for_each(|action| world.act(action));
        world.settle();
        let all: BTreeSet<u64> = world.formed.iter().map(|it| it.founder.0).collect();
        prop_assert!(all.len() <= 1 + world.founders_lost, "one founder forms one: {all:?}");
        let numbers: BTreeSet<(u64, u32)> =
            world.formed.iter().map(|it| (it.founder.0, it.number)).collect();
        prop_assert_eq!(numbers.len(), all.len());
        if world.founders_lost == 0 {
            let formed = world.formed.last();
            prop_assert!(formed.is_some(), "a cluster is formed in the end");
            for (node, directory) in NODES.iter().zip(&world.nodes) {
                // One that was lost later asks to be let in.
                let is_named = formed.unwrap().directories.get(node) == Some(&directory.id);
                let belongs = directory.founding == Founding::Formed(formed.cloned());
                prop_assert_eq!(is_named, belongs, "{:?}", directory);
            }
        }
    }
}
