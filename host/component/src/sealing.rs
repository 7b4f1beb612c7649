//! Retries for a transient failure of Linux to seal memory.

use std::time::Duration;

/// Retries `attempt` while it fails because Linux is moving pages of the memory image, which the first
/// instance of a component creates. `words` returns the text of an error.
pub fn sealed<T, E>(words: impl Fn(&E) -> String, attempt: impl Fn() -> Result<T, E>) -> Result<T, E> {
    for _ in 0..20 {
        match attempt() {
            Err(error) if words(&error).contains("cannot add seals") => {
                std::thread::sleep(Duration::from_millis(50));
            }
            told => return told,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::sealed;

    #[test]
    fn what_is_refused_for_a_moment_is_asked_for_again_and_nothing_else() {
        let calls = Cell::new(0);
        let attempt = |words: &'static str| {
            calls.set(calls.get() + 1);
            if calls.get() < 3 { Err(words) } else { Ok(calls.get()) }
        };
        let words = |error: &&str| (*error).to_owned();
        assert_eq!(sealed(words, || attempt("cannot add seals to a file")), Ok(3));
        calls.set(0);
        assert_eq!(sealed(words, || attempt("something else")), Err("something else"));
    }
}
