//! Waits for remote work after an interrupt.

use std::time::Duration;

use allot_engine::Interrupt;

/// How long work in progress may take after an interrupt. A preempted job has half a minute, in which it
/// must also write its results.
const GRACE: Duration = Duration::from_secs(8);

/// Returns the result of some work; none if it takes longer than a grace period after an interrupt.
pub async fn patient<T>(work: impl Future<Output = T>, interrupt: &Interrupt) -> Option<T> {
    let asked = async {
        while !interrupt.is_asked() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = asked => None,
    }
}
