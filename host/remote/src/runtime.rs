//! The program's async runtime. Its one thread serves requests to graders, the pipes of grader processes, heartbeats and
//! signals while the calling thread samples, trains or calls a policy.

use std::io;
use std::sync::LazyLock;

use allot_engine::EngineError;
use tokio::runtime::{Builder, Runtime};

use crate::client::told;

static RUNTIME: LazyLock<io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).thread_name("async").enable_all().build());

/// Returns the program's runtime, which the first call starts. A future that its `block_on` runs stays on the calling
/// thread and may block it; tasks that it spawns must not block.
///
/// # Errors
///
/// The system provides no thread.
pub fn runtime() -> Result<&'static Runtime, EngineError> {
    let runtime = RUNTIME.as_ref();
    runtime.map_err(|e| told(format!("could not start the async runtime: {e}"), "free some memory"))
}
