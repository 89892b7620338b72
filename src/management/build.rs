//! Compiles the files of the package `quorate.admin.v1` in `proto/` with a protoc written in Rust.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "admin",
        "access",
        "events",
        "members",
        "messages",
        "parts",
        "process",
        "statistics",
        "tasks",
    ];
    let files = files.map(|name| format!("../../proto/{name}.proto"));
    files.iter().for_each(|file| println!("cargo:rerun-if-changed={file}"));
    let descriptors = protox::compile(&files, ["../../proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
