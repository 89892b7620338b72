//! The system's chance, taken away from this test program. Tokio draws from it in which order
//! branches and waiters go first, and the standard library how hash maps are ordered; neither can be
//! told otherwise.
#![expect(unsafe_code, reason = "the one block has its proof beside it")]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static SEED: AtomicU64 = AtomicU64::new(0);

/// Whatever threads that begin from now on ask the system for follows from the seed.
pub fn seed(seed: u64) {
    SEED.store(seed, Relaxed);
}

/// In the place of the C library's function of that name.
#[unsafe(no_mangle)]
extern "C" fn getrandom(buffer: *mut u8, length: usize, _: u32) -> isize {
    let seed = SEED.load(Relaxed).to_le_bytes();
    // SAFETY: whoever calls the function of the C library hands over a buffer of that length, which
    // is its own until the call returns.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    bytes.iter_mut().zip(seed.iter().cycle()).for_each(|(byte, seed)| *byte = *seed);
    length.try_into().unwrap_or(-1)
}
