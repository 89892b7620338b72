//! Ports that no other test takes: each is held by a lock on a file of the machine, for as long as
//! its cluster lives, so a node that was killed finds its port free when it comes back.

use std::fs::{File, create_dir_all};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below Linux' ephemeral range (32768 up), so that no outgoing connection takes one either.
pub(super) const PORTS: std::ops::RangeInclusive<u16> = FIRST..=FIRST + COUNT - 1;
const FIRST: u16 = 26_000;
const COUNT: u16 = 6_000;

/// Where this process looks next; where it begins depends on its id, so that two rarely meet.
static NEXT: AtomicU16 = AtomicU16::new(0);

/// One reserved port of the loopback address. Free again when this is dropped, or its process dies.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Reserves a port that nobody listens on now.
    ///
    /// # Panics
    /// When every port of the range is taken.
    #[must_use]
    pub fn reserve() -> Self {
        let folder = folder();
        create_dir_all(&folder).expect("the folder of port locks");
        let start = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(COUNT))
            .expect("less than COUNT");
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            let number = FIRST + (start + step) % COUNT;
            if let Some(port) = Self::take(&folder, number) {
                return port;
            }
        }
        panic!("no free port between {FIRST} and {}", FIRST + COUNT);
    }

    /// The port number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The address as `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }

    fn take(folder: &std::path::Path, number: u16) -> Option<Self> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join(number.to_string()))
            .ok()?;
        file.try_lock().ok()?;
        // Somebody without our locks may be listening.
        TcpListener::bind(("127.0.0.1", number)).ok()?;
        Some(Self { number, _lock: file })
    }
}

/// Shared by every test process of the machine.
fn folder() -> PathBuf {
    std::env::temp_dir().join("quorate-tests").join("ports")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_port_is_given_twice_while_it_is_held() {
        let held: Vec<Port> = (0..50).map(|_| Port::reserve()).collect();
        let numbers: BTreeSet<u16> = held.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), held.len());
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_passed_over() {
        let port = Port::reserve();
        let number = port.number();
        let _listener = TcpListener::bind(("127.0.0.1", number)).unwrap();
        drop(port);
        assert!(Port::take(&folder(), number).is_none());
    }
}
