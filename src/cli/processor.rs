//! What the processor must have: RocksDB is compiled with instructions for its checksums (`.ci/rocksdb`).

/// A processor on which RocksDB would end with an illegal instruction.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("this processor lacks {0}, which RocksDB is compiled for; see docs/operate/install.md")]
pub(super) struct Lacks(&'static str);

/// Checks the processor that this runs on.
///
/// # Errors
/// It lacks an instruction set; named as `/proc/cpuinfo` names it.
#[cfg(target_arch = "x86_64")]
pub(super) fn check() -> Result<(), Lacks> {
    first_missing(&[
        ("sse4_2", std::arch::is_x86_feature_detected!("sse4.2")),
        ("pclmulqdq", std::arch::is_x86_feature_detected!("pclmulqdq")),
    ])
}

/// Checks the processor that this runs on.
///
/// # Errors
/// It lacks an instruction set; named as `/proc/cpuinfo` names it.
#[cfg(target_arch = "aarch64")]
pub(super) fn check() -> Result<(), Lacks> {
    first_missing(&[
        ("crc32", std::arch::is_aarch64_feature_detected!("crc")),
        ("aes", std::arch::is_aarch64_feature_detected!("aes")),
        ("pmull", std::arch::is_aarch64_feature_detected!("pmull")),
    ])
}

/// RocksDB is compiled for any processor of another architecture.
///
/// # Errors
/// Never: there is no instruction set that it must have.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn check() -> Result<(), Lacks> {
    first_missing(&[])
}

fn first_missing(sets: &[(&'static str, bool)]) -> Result<(), Lacks> {
    sets.iter().find(|(_, is_there)| !is_there).map_or(Ok(()), |(name, _)| Err(Lacks(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_instruction_set_that_is_missing_is_named() {
        assert_eq!(first_missing(&[("a", true), ("b", false), ("c", false)]), Err(Lacks("b")));
        assert_eq!(first_missing(&[("a", true)]), Ok(()));
        assert_eq!(check(), Ok(()), "these tests run with the same RocksDB");
    }
}
