//! openraft's source of random election times: that of the node.

use quorate_rpc::chance;
use rand_core::TryRng;
use std::convert::Infallible;

/// A generator without its own state.
#[derive(Debug)]
pub(crate) struct OpenraftRng;

impl TryRng for OpenraftRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(chance::random())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(chance::random())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes.fill_with(chance::random);
        Ok(())
    }
}
