//! A wish to stop: Ctrl-C, the signal by which a cluster ends a job, or the end of standard input where
//! another process holds it.

use std::io::{Read as _, Write as _};

use allot_engine::Interrupt;
use allot_remote::runtime;
#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};

/// Listens for Ctrl-C and SIGTERM in a task of the program's runtime. The first Ctrl-C asks to stop, and prints `words`; a
/// second one ends the program. A SIGTERM counts as a first Ctrl-C, however often it comes: queues send it more than once.
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
        // Registered before the task starts: on a busy machine a SIGTERM could otherwise end the run without a checkpoint.
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

/// Ends the program when standard input does, for one that has nothing to save.
pub fn end_with_input() {
    std::thread::spawn(|| {
        until_end_of_input();
        std::process::exit(130);
    });
}

/// Asks to stop when standard input ends: the process that started this one and holds its input closed it, or has ended.
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
