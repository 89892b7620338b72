//! Compiles the protocol files of `proto/` with a protoc written in Rust.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["../../proto/links.proto"];
    println!("cargo:rerun-if-changed=../../proto");
    let descriptors = protox::compile(files, ["../../proto"])?;
    // `bytes(".")`: payloads stay slices of the received buffer.
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
