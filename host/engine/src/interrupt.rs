//! A request to stop, polled between two tokens and between two micro-batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to stop work, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Returns an interrupt that is not requested yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a stop. Returns whether it was already requested.
    pub fn ask(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }

    /// Returns whether a stop was requested.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
