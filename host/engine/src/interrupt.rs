//! A wish to stop, looked at between two tokens and between two micro-batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Somebody may ask for work to stop. Copies of one share the wish.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// One that nobody has asked for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a stop. Gives whether somebody did before.
    pub fn ask(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }

    /// Whether somebody asked.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
