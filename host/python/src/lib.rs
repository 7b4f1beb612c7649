//! The wheel's native half: policies, and everything of a run that is neither sampling nor learning, for a
//! trainer that is written in Python. The other half is `allot/`.
//!
//! It is the loop, the rules and the record of the other crates, and none of its own: what comes when is said by
//! `allot-loop`, which the program drives, too. It knows nothing of any trainer, of text or of tensors.

mod allocator;
mod calls;
mod columns;
mod exception;
mod kept;
mod policy;
mod setup;
mod shipped;

use pyo3::prelude::*;

/// The module `allot._allot`.
#[pymodule]
#[pyo3(name = "_allot")]
mod module {
    #[pymodule_export]
    use crate::allocator::Allocator;
    #[pymodule_export]
    use crate::calls::calls;
    #[pymodule_export]
    use crate::policy::Policy;
    #[pymodule_export]
    use crate::shipped::shipped;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    const CONTRACT: &str = allot_sandbox::CONTRACT_VERSION;
}
