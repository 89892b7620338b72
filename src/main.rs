//! Quorate.
fn main() {}
