//! Compiles `proto/admin.proto` and `proto/access.proto` with a protoc written in Rust.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["../../proto/admin.proto", "../../proto/access.proto"];
    files.iter().for_each(|file| println!("cargo:rerun-if-changed={file}"));
    let descriptors = protox::compile(files, ["../../proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
