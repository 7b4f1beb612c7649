//! Waiting for what works elsewhere, once somebody asked to stop.

use std::time::Duration;

use allot_engine::Interrupt;

/// How long work under way may go on after somebody asked to stop: a job that is taken its machine has half a minute,
/// and must still write down what it has.
const GRACE: Duration = Duration::from_secs(8);

/// What comes of some work, unless somebody asks to stop and it takes long from then on.
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
