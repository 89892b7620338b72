//! The process: what `quorate` is asked to do on its command line.

mod secret;
pub(crate) mod settings;
