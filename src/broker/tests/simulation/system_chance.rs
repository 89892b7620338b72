//! Replaces the system's randomness in this test program. Tokio uses it for the order of branches
//! and waiters, and the standard library for the order of hash maps; neither accepts a seed
//! otherwise.
#![expect(unsafe_code, reason = "the one block has its proof beside it")]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static SEED: AtomicU64 = AtomicU64::new(0);

/// Derives from the seed whatever threads that start from now on request from the system.
pub fn seed(seed: u64) {
    SEED.store(seed, Relaxed);
}

/// Replaces the C library's function of that name.
#[unsafe(no_mangle)]
extern "C" fn getrandom(buffer: *mut u8, length: usize, _: u32) -> isize {
    let seed = SEED.load(Relaxed).to_le_bytes();
    // SAFETY: a caller of the C library's function passes a buffer of that length, which belongs to
    // it until the call returns.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    bytes.iter_mut().zip(seed.iter().cycle()).for_each(|(byte, seed)| *byte = *seed);
    length.try_into().unwrap_or(-1)
}
