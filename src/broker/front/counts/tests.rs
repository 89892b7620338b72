//! Open connections and channels are counted when they open and close.

#![expect(clippy::indexing_slicing, reason = "tests")]

use super::*;
use proptest::{collection::vec, prelude::*};

/// The counts need no pass over the connections, and nothing remains of closed ones.
#[test]
fn what_is_open_is_counted_as_it_comes_and_goes() {
    let [vhost, one, other] = ["v", "one", "other"].map(ShortString::from_static);
    let mut own = Own::default();
    own.change(&vhost, &one, 1, 0);
    own.change(&vhost, &one, 0, 1);
    own.change(&vhost, &other, 1, 0);
    own.change(&vhost, &other, 0, 1);
    own.change(&vhost, &other, 0, 1);
    assert_eq!((own.connections, own.channels), (2, 3));
    assert_eq!(own.vhosts.get(&vhost), Some(&2));
    assert_eq!(own.users.get(&other), Some(&(1, 2)));
    own.change(&vhost, &other, -1, -2);
    assert_eq!(own.users.get(&other), None);
    own.change(&vhost, &one, -1, -1);
    assert_eq!(own, Own::default());
}

proptest! {
    /// VLM-04: the counts equal what is open, for each virtual host and each user, in whichever
    /// order things open and close.
    #[test]
    fn vlm_04_what_is_counted_is_what_is_open(
        steps in vec((0..2_usize, 0..3_usize, 0..4_usize, any::<usize>()), 1..100),
    ) {
        let names = ["a", "b", "c"].map(ShortString::from_static);
        // Connections: virtual host, user, channels.
        let (mut own, mut open) = (Own::default(), Vec::<(usize, usize, i64)>::new());
        for (vhost, user, what, at) in steps {
            let at = at % open.len().max(1);
            match (what, open.get_mut(at)) {
                (0, _) | (_, None) => {
                    open.push((vhost, user, 0));
                    own.change(&names[vhost], &names[user], 1, 0);
                }
                (1, Some((vhost, user, channels))) => {
                    *channels += 1;
                    own.change(&names[*vhost], &names[*user], 0, 1);
                }
                (2, Some((vhost, user, channels))) if *channels > 0 => {
                    *channels -= 1;
                    own.change(&names[*vhost], &names[*user], 0, -1);
                }
                (_, Some(_)) => {
                    let (vhost, user, channels) = open.swap_remove(at);
                    own.change(&names[vhost], &names[user], -1, -channels);
                }
            }
            let mut expected = Own::default();
            for (vhost, user, channels) in &open {
                let channels = channels.unsigned_abs();
                expected.connections += 1;
                expected.channels += channels;
                *expected.vhosts.entry(names[*vhost].clone()).or_default() += 1;
                let of_user = expected.users.entry(names[*user].clone()).or_default();
                *of_user = (of_user.0 + 1, of_user.1 + channels);
            }
            prop_assert_eq!(&own, &expected);
        }
    }
}
