//! Arbitrary bytes as all that a client sends, from the protocol header on: taken or refused, never a panic.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorate_amqp::fuzz_client(bytes));
