//! All replicas of every group hold the same state at the same index (`quorate ctl audit`).

use crate::harness::Cluster;
use crate::harness::wait::eventually;

/// Fails the test unless the audit of the whole cluster finds all replicas equal. One that is still
/// behind may catch up meanwhile; one that differs never becomes equal, and fails the test at once.
///
/// # Panics
/// With what the audit said last.
pub async fn assert_replicas_equal(cluster: &Cluster) {
    eventually("all replicas are equal", || async {
        let audit = cluster.ctl(1, &["audit"]).await;
        assert!(!audit.stdout.contains("DIFFERENT"), "{}", audit.stdout);
        audit.succeeded()
    })
    .await;
}
