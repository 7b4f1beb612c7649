//! Requests to stop: Ctrl-C, the signal by which a cluster ends a job, or the end of standard input that
//! another process holds.

use std::io::{Read as _, Write as _};

use allot_engine::Interrupt;
use allot_remote::runtime;
#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};

/// Handles Ctrl-C and SIGTERM in a task of the program's runtime. The first Ctrl-C requests a stop and
/// prints `words`; a second one ends the program. SIGTERMs, which queues repeat, count as one Ctrl-C.
pub fn listen(words: &'static str) -> Interrupt {
    let stop = Interrupt::new();
    let Ok(runtime) = runtime() else { return stop };
    let asked = stop.clone();
    let ask = move |pressed| match (asked.ask(), pressed) {
        (true, true) => std::process::exit(130),
        (true, false) => {}
        (false, _) => _ = writeln!(std::io::stderr(), "\n{words}"),
    };
    #[cfg(unix)]
    {
        // Registered before the task starts: an early SIGTERM could end the run without a checkpoint.
        let _inside = runtime.enter();
        let pair = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let (Ok(mut pressed), Ok(mut ended)) = pair else { return stop };
        runtime.spawn(async move {
            loop {
                tokio::select! {
                    Some(()) = pressed.recv() => ask(true),
                    Some(()) = ended.recv() => ask(false),
                    else => return,
                }
            }
        });
    }
    #[cfg(not(unix))]
    runtime.spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            ask(true);
        }
    });
    stop
}

/// Ends the program at the end of standard input, for runs without anything to save.
pub fn end_with_input() {
    std::thread::spawn(|| {
        until_end_of_input();
        std::process::exit(130);
    });
}

/// Requests a stop at the end of standard input: the process that started this one closed it, or has ended.
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
