//! The one source of randomness for all crates above storage: the operating system's, through
//! `rand`'s thread-local generator, which is fit for secrets. A simulation seeds the thread on
//! which it runs, so that all values drawn there follow from the seed.

use rand::{
    Rng, SeedableRng,
    distr::{Distribution, StandardUniform},
    rngs::StdRng,
};
use std::{cell::RefCell, ops::RangeInclusive};

thread_local! {
    static SEEDED: RefCell<Option<StdRng>> = const { RefCell::new(None) };
}

/// Draws a value.
#[must_use]
pub fn random<T>() -> T
where
    StandardUniform: Distribution<T>,
{
    SEEDED.with_borrow_mut(|seeded| match seeded {
        Some(chance) => chance.random(),
        None => rand::random(),
    })
}

/// Draws a number from a range.
#[must_use]
pub fn in_range(range: RangeInclusive<u64>) -> u64 {
    SEEDED.with_borrow_mut(|seeded| match seeded {
        Some(chance) => chance.random_range(range),
        None => rand::rng().random_range(range),
    })
}

/// For simulations: all values that this thread draws from now on follow from the seed. They are
/// not secret any more.
pub fn seed(seed: u64) {
    SEEDED.set(Some(StdRng::seed_from_u64(seed)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw() -> (u64, [u8; 16], u64) {
        (random(), random(), in_range(50..=100))
    }

    #[test]
    fn what_is_drawn_follows_from_the_seed_of_the_thread_and_from_nothing_without_one() {
        let drawn_with = |number| {
            let thread = std::thread::spawn(move || {
                seed(number);
                [draw(), draw()]
            });
            thread.join().unwrap_or_default()
        };
        assert_eq!(drawn_with(7), drawn_with(7));
        assert_ne!(drawn_with(7), drawn_with(8));
        let [first, second] = drawn_with(7);
        assert_ne!(first, second);
        assert_ne!(draw(), draw(), "this thread has no seed");
        assert!((0..1_000).all(|_| (50..=100).contains(&in_range(50..=100))));
    }
}
