//! A wish to stop: Ctrl-C, the signal by which a cluster ends a job, or the end of standard input where
//! another process holds it.

use std::io::{Read as _, Write as _};

use allot_engine::Interrupt;

/// Waits for Ctrl-C on a thread of its own. The first one asks to stop, and says `words`; a second
/// one ends the program. A SIGTERM is as the first, however often it comes: queues send it more than once.
pub fn listen(words: &'static str) -> Interrupt {
    let stop = Interrupt::new();
    let asked = stop.clone();
    let (ready, listening) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            #[cfg(unix)]
            let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
            let _ = ready.send(());
            loop {
                #[cfg(unix)]
                let pressed = tokio::select! {
                    pressed = tokio::signal::ctrl_c() => pressed.is_ok().then_some(true),
                    Some(()) = next(&mut ended) => Some(false),
                };
                #[cfg(not(unix))]
                let pressed = tokio::signal::ctrl_c().await.is_ok().then_some(true);
                let Some(pressed) = pressed else { return };
                match (asked.ask(), pressed) {
                    (true, true) => std::process::exit(130),
                    (true, false) => {}
                    (false, _) => _ = writeln!(std::io::stderr(), "\n{words}"),
                }
            }
        });
    });
    // On a busy machine a run may otherwise be at work before its thread is, and a SIGTERM ends it without a checkpoint.
    let _ = listening.recv();
    stop
}

/// The next of a signal that may not be had.
#[cfg(unix)]
async fn next(signal: &mut Option<tokio::signal::unix::Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Ends the program when standard input does, for one that has nothing to save.
pub fn end_with_input() {
    std::thread::spawn(|| {
        until_end_of_input();
        std::process::exit(130);
    });
}

/// Asks to stop when standard input ends: whoever started this process and holds its input wants it
/// to stop, or is gone.
pub fn tie(stop: &Interrupt) {
    let stop = stop.clone();
    std::thread::spawn(move || {
        until_end_of_input();
        stop.ask();
    });
}

fn until_end_of_input() {
    let mut bytes = [0; 64];
    let mut input = std::io::stdin().lock();
    while input.read(&mut bytes).is_ok_and(|n| n > 0) {}
}
