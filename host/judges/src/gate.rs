//! At most so many episodes are open; others begin as those end.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Begins an episode.
type Begin = Box<dyn FnOnce() + Send>;

/// The gate that episodes pass when they begin.
#[derive(Default)]
pub(crate) struct Gate(Mutex<State>);

#[derive(Default)]
struct State {
    open: usize,
    waiting: VecDeque<Begin>,
    is_closed: bool,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an episode now, or once fewer than `most` are open.
    pub fn enter(&self, most: usize, begin: Begin) {
        let mut state = self.state();
        if state.open >= most {
            return state.waiting.push_back(begin);
        }
        state.open += 1;
        drop(state);
        begin();
    }

    /// Takes the place of an episode that has ended for the one that waits longest.
    pub fn leave(&self) {
        let mut state = self.state();
        if state.is_closed {
            return;
        }
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.open = state.open.saturating_sub(1);
        }
        // What begins may end at once, and leave.
        drop(state);
        if let Some(begin) = next {
            begin();
        }
    }

    /// Returns whether an episode is open.
    pub fn is_passed(&self) -> bool {
        self.state().open > 0
    }

    /// Lets nothing more begin.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn others_begin_as_those_that_are_open_end() {
        let (gate, begun) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
        let enter = || {
            let begun = Arc::clone(&begun);
            gate.enter(2, Box::new(move || _ = begun.fetch_add(1, Ordering::SeqCst)));
        };
        (0..4).for_each(|_| enter());
        assert_eq!(begun.load(Ordering::SeqCst), 2);
        gate.leave();
        assert_eq!(begun.load(Ordering::SeqCst), 3);
        // One that ends as it begins makes room for the next.
        let inside = Arc::clone(&gate);
        gate.enter(2, Box::new(move || inside.leave()));
        gate.leave();
        assert_eq!(begun.load(Ordering::SeqCst), 4);
        assert!(gate.is_passed());
        (0..2).for_each(|_| gate.leave());
        assert!(!gate.is_passed());
        (0..3).for_each(|_| enter());
        assert_eq!(begun.load(Ordering::SeqCst), 6);
        gate.close();
        gate.leave();
        assert_eq!(begun.load(Ordering::SeqCst), 6);
    }
}
