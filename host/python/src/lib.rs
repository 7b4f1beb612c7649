//! The native half of the wheel: policies, and all of a run except sampling and training, for a trainer in
//! Python. The other half is `allot/`.
//!
//! It uses the loop, the rules and the record of the other crates. The order of events is defined by
//! `allot-loop`, which the program uses, too. This crate knows nothing about trainers, text or tensors.

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
