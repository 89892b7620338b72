//! What `audit` says.

use super::{transcript, world::start};
use expect_test::expect;

#[test]
fn an_audit_compares_replicas_and_fails_where_they_differ() {
    let mut cluster = start(2);
    expect![[r#"
        $ -n NODE audit
        Comparing the replicas of every group ...
        group 0	same	index 19	digest 0000000000000abc	2 of 2 replicas
        group 1	same	index 30	digest 0000000000000def	2 of 2 replicas
        = 0
    "#]]
    .assert_eq(&transcript(&cluster, "-n NODE audit"));
    cluster.worlds[1].spoil_digest();
    expect![[r#"
        $ -n NODE audit
        Comparing the replicas of every group ...
        group 0	same	index 19	digest 0000000000000abc	2 of 2 replicas
        group 1	DIFFERENT	index 30	rabbit1@127.0.0.1 0000000000000def, rabbit2@127.0.0.1 0000000000000df0
        ! Error:
        ! not all replicas are known to be identical
        = 70
    "#]].assert_eq(&transcript(&cluster, "-n NODE audit"));
}
