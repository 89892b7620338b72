//! Compiles `proto/broker.proto` with a protoc written in Rust.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../../proto/broker.proto");
    let descriptors = protox::compile(["../../proto/broker.proto"], ["../../proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
