//! Bodies that carry their own number, and tell when a byte of them is wrong.

/// Which message: the publishing channel it came from, and its place there, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number {
    /// Publishing channel, as [`super::History::producer`] gave it.
    pub producer: u32,
    /// Place in it.
    pub seq: u64,
}

/// Bytes of a body before its filling: producer, place, length.
const HEAD: usize = 16;

impl Number {
    /// A body of `bytes` bytes, or of as many as the number itself needs.
    #[must_use]
    pub fn body(self, bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes.max(HEAD)).unwrap_or(u32::MAX);
        let mut body = self.producer.to_be_bytes().to_vec();
        body.extend(self.seq.to_be_bytes());
        body.extend(length.to_be_bytes());
        body.extend((HEAD..bytes).map(|at| self.filling(at)));
        body
    }

    /// The number of a body.
    ///
    /// # Errors
    /// What is wrong with it, where it is no body of ours, byte by byte.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let short = || format!("a body of {} bytes", body.len());
        let (producer, rest) = body.split_first_chunk::<4>().ok_or_else(short)?;
        let (seq, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
        let (length, filling) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let number =
            Self { producer: u32::from_be_bytes(*producer), seq: u64::from_be_bytes(*seq) };
        let length = u32::from_be_bytes(*length);
        if usize::try_from(length) != Ok(body.len()) {
            return Err(format!("{number:?} has {} bytes, not {length}", body.len()));
        }
        let wrong = (HEAD..).zip(filling).find(|(at, byte)| number.filling(*at) != **byte);
        match wrong {
            Some((at, _)) => Err(format!("{number:?} is wrong at byte {at}")),
            None => Ok(number),
        }
    }

    /// The byte at a place: depends on the message and the place, so that a piece of another
    /// message, or a piece in the wrong place, shows.
    fn filling(self, at: usize) -> u8 {
        let mixed = (self.seq ^ u64::from(self.producer).rotate_left(32) ^ at as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 56) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_tells_its_number_and_any_damage() {
        let number = Number { producer: 7, seq: 1 << 40 };
        for bytes in [0, 16, 17, 1024] {
            let body = number.body(bytes);
            assert_eq!(body.len(), bytes.max(16));
            assert_eq!(Number::read(&body), Ok(number));
        }
        let mut damaged = number.body(1024);
        damaged[500] ^= 1;
        assert!(Number::read(&damaged).unwrap_err().contains("byte 500"));
        assert!(Number::read(&number.body(1024)[..1000]).is_err());
        assert!(Number::read(b"short").is_err());
    }
}
