//! Arbitrary payloads in well-formed frames: taken or refused, never a panic.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorate_amqp::fuzz_payloads(bytes));
