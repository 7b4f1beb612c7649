//! The one way in which a test stops without having run what it is about.

use std::io::Write as _;

/// Says that this test stops here: it lacks `what`, for the reason `why`. With `ALLOT_SKIPS` set it fails, unless
/// that names `what`, with commas between names: so CI says which skips it puts up with.
///
/// # Panics
///
/// Where `ALLOT_SKIPS` is set and does not name it.
#[allow(
    dead_code,
    clippy::explicit_write,
    reason = "what `eprintln!` writes is shown of tests that fail alone"
)]
pub fn skip(what: &str, why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "\nSKIPPED {what}: {test}: {why}");
    if let Ok(named) = std::env::var("ALLOT_SKIPS") {
        assert!(
            named.split(',').any(|name| name.trim() == what),
            "ALLOT_SKIPS does not name `{what}`: {why}"
        );
    }
}
