//! Arbitrary bytes where frames are looked for: taken or refused, never a panic.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| quorate_amqp::fuzz_frames(octets));
