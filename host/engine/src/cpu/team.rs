//! Threads that stay awake while they share many short pieces of work.
//!
//! A token of one answer takes a hundred products and more, each over in 20 to 100 µs. A thread that falls asleep between
//! two of them has to be woken, and so has one that waits for it: with two threads, about a tenth of the time of a token
//! (`docs/results/speed.md`). Rayon's threads look for work for a few µs, and nothing sets how long.

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rayon::Yield;

/// Looks for work between which a thread spins. After so many it gives its core to any other program that wants it.
const EAGER: u32 = 64;
/// Spins between two looks: a look touches what the other threads write.
const SPINS: u32 = 16;

thread_local! {
    /// Whether the thread is in the work of [`awake`].
    static LEADS: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work`. Until it has returned, the pool's other threads wait for pieces of it without falling asleep, but for those that
/// have such work themselves: two would wait for each other for ever.
pub fn awake(work: impl FnOnce()) {
    if rayon::current_thread_index().is_none() || LEADS.get() {
        return work();
    }
    let over = AtomicBool::new(false);
    rayon::in_place_scope(|scope| {
        let over = &over;
        LEADS.set(true);
        // Also if it panics.
        let _told = AtEnd(|| {
            over.store(true, Ordering::Release);
            LEADS.set(false);
        });
        scope.spawn_broadcast(|_, _| {
            if !LEADS.get() {
                until(|| over.load(Ordering::Acquire));
            }
        });
        work();
    });
}

/// Calls `work` with each item, with the first on this thread, which then waits for the others without falling asleep.
pub fn together<T: Send>(mut items: impl Iterator<Item = T>, work: impl Fn(T) + Sync) {
    let Some(first) = items.next() else { return };
    let left = AtomicUsize::new(0);
    rayon::in_place_scope(|scope| {
        for item in items {
            left.fetch_add(1, Ordering::Relaxed);
            scope.spawn(|_| {
                let _told = AtEnd(|| left.fetch_sub(1, Ordering::Release));
                work(item);
            });
        }
        work(first);
        until(|| left.load(Ordering::Acquire) == 0);
    });
}

/// Works on pieces until something is so.
fn until(so: impl Fn() -> bool) {
    let mut idle = 0;
    while !so() {
        match rayon::yield_now() {
            Some(Yield::Executed) => idle = 0,
            _ if idle < EAGER => {
                idle += 1;
                (0..SPINS).for_each(|_| spin_loop());
            }
            _ => std::thread::yield_now(),
        }
    }
}

/// Calls a function when it is dropped.
struct AtEnd<R, F: FnMut() -> R>(F);

impl<R, F: FnMut() -> R> Drop for AtEnd<R, F> {
    fn drop(&mut self) {
        self.0();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;

    use rayon::ThreadPoolBuilder;

    use super::*;

    #[test]
    fn each_item_is_worked_on_once_by_all_threads_and_panics_end_it() {
        let pool = ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
        let both = AtomicUsize::new(0);
        let seen = Mutex::new(Vec::new());
        pool.install(|| {
            awake(|| {
                for round in 0..200 {
                    together(0..5, |n| seen.lock().expect("no panic").push(round * 5 + n));
                }
                // Two that wait for each other: they are on two threads.
                together(0..2, |_| {
                    both.fetch_add(1, Ordering::SeqCst);
                    while both.load(Ordering::SeqCst) < 2 {
                        spin_loop();
                    }
                });
            });
        });
        let mut seen = seen.into_inner().expect("no panic");
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());

        // Two that lead at a time in one pool.
        pool.install(|| {
            let lead = || (0..2000).for_each(|_| awake(|| together(0..3, |n| drop(vec![n]))));
            rayon::join(lead, lead);
        });

        for bad in 0..3 {
            let run = || pool.install(|| awake(|| together(0..3, |n| assert_ne!(n, bad))));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err(), "part {bad}");
        }
        together(0..3, |n| {
            both.fetch_add(n, Ordering::SeqCst);
        });
        assert_eq!(both.into_inner(), 5, "also outside of a pool");
    }
}
