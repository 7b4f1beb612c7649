//! Turns panics of third-party code into error messages. If a library panics on bad input, the command ends
//! with an error, as for any other bad input.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use allot_allocation::shown;

thread_local! {
    /// Whether [`caught`] is running on this thread.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of `work`, or its panic message on one line. Use it for third-party code on untrusted
/// input that leaves no partial state behind: nothing that `work` modifies may be used after a panic. A
/// panic of this thread prints nothing.
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

/// Returns the message of a panic, on one line.
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
