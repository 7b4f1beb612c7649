//! A wish to stop, looked at between two tokens and between two micro-batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to stop work. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// An interrupt that is not asked for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a stop. Returns whether it was asked for before.
    pub fn ask(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }

    /// Whether a stop was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
