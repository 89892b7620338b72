//! A commit is answered once, when all its publishes have been answered: whether all were taken.

use super::*;
use proptest::{collection::vec, prelude::*};

proptest! {
    /// TX-05: one refused publish fails the commit, and it is answered only after the last publish.
    #[test]
    fn tx_05_a_commit_is_answered_once_whether_all_was_taken(
        answers in vec((1..5_u32, prop::bool::weighted(0.8)), 1..20),
    ) {
        let publishes: u32 = answers.iter().map(|(count, _)| count).sum();
        let (commit, mut all_taken) = Commit::new(publishes as usize);
        for (count, taken) in &answers {
            prop_assert!(all_taken.try_recv().is_err(), "{} are not answered", count);
            commit.answered(*count, *taken);
        }
        prop_assert_eq!(all_taken.try_recv(), Ok(answers.iter().all(|(_, taken)| *taken)));
    }
}
