//! Figures that a run shows even when its tests pass.

use std::io::Write;

/// Prints a measured figure. Written past the test runner's capture, so that a green run shows it.
pub fn figure(what: &str, value: impl std::fmt::Debug) {
    // A closed standard error is no reason to fail a test.
    let _ = writeln!(std::io::stderr().lock(), "figure: {what}: {value:?}");
}
