//! A wish to stop: Ctrl-C, or the end of standard input where another process holds it.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Waits for Ctrl-C on a thread of its own. The first one makes the flag true, and says `words`; a second
/// one ends the program.
pub fn listen(words: &'static str) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                if asked.swap(true, Ordering::SeqCst) {
                    std::process::exit(130);
                }
                let _ = writeln!(std::io::stderr(), "\n{words}");
            }
        });
    });
    stop
}

/// Ends the program when standard input does, for one that has nothing to save.
pub fn end_with_input() {
    std::thread::spawn(|| {
        until_end_of_input();
        std::process::exit(130);
    });
}

/// Makes the flag true when standard input ends: whoever started this process and holds its input wants it
/// to stop, or is gone.
pub fn tie(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        until_end_of_input();
        stop.store(true, Ordering::SeqCst);
    });
}

fn until_end_of_input() {
    let mut bytes = [0; 64];
    let mut input = std::io::stdin().lock();
    while input.read(&mut bytes).is_ok_and(|n| n > 0) {}
}
