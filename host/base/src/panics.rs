//! What others' code panics on becomes a sentence: a library that gives up on what it was given ends a command with
//! an error, as any other bad input does.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use allot_allocation::shown;

thread_local! {
    /// Whether a panic of this thread is caught and told by [`caught`].
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// What `work` comes to, or what it panicked with, in one line. For code that is not ours, on input that is not ours,
/// and that leaves nothing half done behind: nothing of what it was at work on is used after a panic. Nothing is
/// printed for a panic of this thread.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            if !CAUGHT.get() {
                before(about);
            }
        }));
    });
    let outer = CAUGHT.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(outer);
    done.map_err(|panic| words(panic.as_ref()))
}

/// The words of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    said.map_or_else(|| "it panicked without a message".to_owned(), |said| shown::line(said, shown::LINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_sentence() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught(|| panic!("no\nway {}", 1)), Err::<(), _>("no; way 1".to_owned()));
        let at = |items: &[u8], n: usize| items[n];
        assert!(caught(|| at(&[], 3)).is_err_and(|said| said.contains("out of bounds")));
    }
}
