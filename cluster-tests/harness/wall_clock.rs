//! A node whose wall clock is wrong, by a library that is loaded before its own.

use super::process::Launch;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = include_str!("wall_clock.c");

/// The launch with a wall clock that is `seconds` ahead; `None` where there is no C compiler.
///
/// # Panics
/// When the compiler does not take the library, or `folder` cannot be written.
#[must_use]
pub fn ahead(mut launch: Launch, seconds: u32, folder: &Path) -> Option<Launch> {
    let (source, library) = (folder.join("wall_clock.c"), folder.join("wall_clock.so"));
    std::fs::write(&source, SOURCE).expect("write the library's source");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source);
    let compiled = match compiler.status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        compiled => compiled.expect("run cc"),
    };
    assert!(compiled.success(), "cc: {compiled}");
    launch.env.push(("LD_PRELOAD".to_owned(), library.display().to_string()));
    launch.env.push(("WALL_OFFSET".to_owned(), seconds.to_string()));
    Some(launch)
}
