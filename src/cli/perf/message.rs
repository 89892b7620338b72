//! The head that identifies a message, written into its body: send time, run, publisher, and number
//! within the publisher.

/// Bytes of the whole head. A shorter body contains a part of it: with 8 bytes or more the time.
pub(crate) const HEAD_BYTES: usize = 20;
/// Bytes of the time.
const TIME_BYTES: usize = 8;

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// When it was passed to the socket, ns on the run's clock.
    pub(crate) sent_ns: u64,
    /// Random number of the run: messages of another run use another clock.
    pub(crate) run: u32,
    /// Publisher, from 0.
    pub(crate) publisher: u16,
    /// Number among the publisher's messages, from 1; 48 bits.
    pub(crate) number: u64,
}

impl Head {
    /// The bytes at the beginning of a body.
    pub(crate) fn bytes(self) -> [u8; HEAD_BYTES] {
        let [t0, t1, t2, t3, t4, t5, t6, t7] = self.sent_ns.to_be_bytes();
        let [r0, r1, r2, r3] = self.run.to_be_bytes();
        let [p0, p1] = self.publisher.to_be_bytes();
        let [_, _, n0, n1, n2, n3, n4, n5] = self.number.to_be_bytes();
        [t0, t1, t2, t3, t4, t5, t6, t7, r0, r1, r2, r3, p0, p1, n0, n1, n2, n3, n4, n5]
    }

    /// The head of a body, if the body is long enough.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEAD_BYTES] = body.first_chunk()?;
        let [t0, t1, t2, t3, t4, t5, t6, t7, r0, r1, r2, r3, p0, p1, n0, n1, n2, n3, n4, n5] =
            *bytes;
        Some(Self {
            sent_ns: u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            run: u32::from_be_bytes([r0, r1, r2, r3]),
            publisher: u16::from_be_bytes([p0, p1]),
            number: u64::from_be_bytes([0, 0, n0, n1, n2, n3, n4, n5]),
        })
    }
}

/// The time alone, from a body that is too short for a whole head.
pub(crate) fn sent_ns(body: &[u8]) -> Option<u64> {
    body.first_chunk::<TIME_BYTES>().map(|bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head =
            Head { sent_ns: 0x0102_0304_0506_0708, run: 9, publisher: 77, number: (1 << 48) - 2 };
        let mut body = head.bytes().to_vec();
        body.push(0);
        assert_eq!(Head::read(&body), Some(head));
        assert_eq!(sent_ns(&body), Some(head.sent_ns));
        assert_eq!(Head::read(body.get(..19).unwrap_or_default()), None);
        assert_eq!(sent_ns(&[0; 7]), None);
    }
}
