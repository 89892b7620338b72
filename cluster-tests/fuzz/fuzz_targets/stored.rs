//! Arbitrary bytes as what a node finds on its disk or gets from another: refused, or read and written
//! again as the same; never a panic.

#![no_main]

use bytes::Bytes;
use quorate_storage::codec::{answer, batch, catalog, catalog_reply, log, message, queue};

/// Where the bytes are taken for something, that must be read again from what it is written as. (It is
/// compared as written: a NaN in a table is not equal to itself.)
macro_rules! again {
    ($bytes:expr, $decode:path, $encode:expr) => {
        if let Ok(read) = $decode($bytes) {
            let written: Bytes = $encode(&read);
            let again = $decode(&written).expect("what was written can be read");
            assert_eq!($encode(&again), written);
        }
    };
}

fn whole(chain: Vec<Bytes>) -> Bytes {
    Bytes::from(chain.concat())
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let bytes = &Bytes::copy_from_slice(bytes);
    match kind % 9 {
        0 => again!(bytes, queue::decode_entry, queue::encode_entry),
        1 => again!(bytes, queue::decode_record, queue::encode_record),
        2 => again!(bytes, catalog::decode_entry, catalog::encode_entry),
        3 => again!(bytes, catalog::decode_record, catalog::encode_record),
        4 => again!(bytes, catalog_reply::decode_replies, |replies: &Vec<_>| {
            catalog_reply::encode_replies(replies)
        }),
        5 => again!(bytes, message::decode, message::encode),
        6 => again!(bytes, answer::decode_answer, answer::encode_answer),
        7 => again!(bytes, log::decode_wire, |entry| whole(log::encode_wire(entry))),
        _ => again!(bytes, batch::decode_batch, |sent| whole(batch::encode_batch(sent))),
    }
});
