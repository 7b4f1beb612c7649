//! The thread of those that ask judges.

use allot_error::{Error, Result};
use tokio::runtime::{Builder, Runtime};

/// The async runtime of a thread that asks judges.
pub(crate) fn runtime() -> Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Error::new(format!("no async runtime: {e}")))
}
