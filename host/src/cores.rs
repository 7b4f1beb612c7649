//! Work on all cores of this machine.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::available_parallelism;

/// Works on items on all cores, which take them in their order. Calls `done` on this thread with each result, as it comes.
///
/// # Panics
///
/// If `work` does.
pub fn each<T, R: Send>(
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) -> R + Sync,
    done: impl FnMut(R),
) {
    let (left, (send, results)) = (Mutex::new(items), mpsc::channel());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, NonZero::get) {
            let send = send.clone();
            let (next, work) = (&next, &work);
            scope.spawn(move || {
                while let Some(item) = next() {
                    if send.send(work(item)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        results.into_iter().for_each(done);
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn each_item_is_worked_on_once_until_there_are_no_more() {
        let mut squares = Vec::new();
        each(0_u64..100, |n| n * n, |square| squares.push(square));
        squares.sort_unstable();
        assert_eq!(squares, (0..100).map(|n| n * n).collect::<Vec<_>>());

        let over = AtomicBool::new(false);
        let mut seen = Vec::new();
        let items = (0..).take_while(|_| !over.load(Ordering::Relaxed));
        let work = |n: usize| {
            over.fetch_or(n == 20, Ordering::Relaxed);
            n
        };
        each(items, work, |n| seen.push(n));
        seen.sort_unstable();
        assert_eq!(seen, (0..seen.len()).collect::<Vec<_>>(), "those before it are done, too");
        assert!(seen.len() > 20);
    }
}
