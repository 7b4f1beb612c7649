//! The live view in a terminal: one thread reads the runs; the main thread draws and handles keys.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use allot_base::{Error, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::observer::Observer;
use super::scene::Scene;
use super::style::Style;
use super::view::{self, Choice, Move};

/// Time to wait for a key before looking for a new scene.
const LISTEN: Duration = Duration::from_millis(50);

/// A message to the drawing thread.
enum News {
    /// There is a new scene.
    Scene(Box<Scene>),
    /// The operating system asks the program to end.
    End,
}

/// Shows the runs until a key or a signal ends the view, then restores the terminal.
pub fn show(places: &[PathBuf], every: Duration) -> Result<()> {
    let look = Observer::at(places)?;
    let (sender, news) = channel();
    signals(sender.clone());
    let failed =
        |error: std::io::Error| Error::new(format!("could not show the runs on this terminal: {error}"));
    // `try_init` also restores the terminal after a panic.
    let begun = ratatui::try_init();
    let shown = begun.and_then(|mut terminal| {
        let (stop, stopped) = channel();
        let looking = thread::Builder::new().spawn(move || keep_looking(look, every, &sender, &stopped))?;
        let shown = watch(&mut terminal, &news, &looking);
        // Do not wait for the thread: it may be in the middle of a long record.
        drop((stop, looking));
        shown
    });
    let restored = ratatui::try_restore();
    shown.and(restored).map_err(failed)
}

/// Reads the runs repeatedly until the receiver is gone.
fn keep_looking(mut look: Observer, every: Duration, news: &Sender<News>, stopped: &Receiver<()>) {
    loop {
        let began = Instant::now();
        if news.send(News::Scene(Box::new(look.scene()))).is_err() {
            return;
        }
        // Runs that take long to read are read less often.
        let pause = every.max(began.elapsed());
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn watch(
    terminal: &mut DefaultTerminal,
    news: &Receiver<News>,
    looking: &JoinHandle<()>,
) -> std::io::Result<()> {
    let style = Style::here();
    let (mut scene, mut choice) = (None, Choice::default());
    let mut stale = true;
    loop {
        loop {
            match news.try_recv() {
                Ok(News::Scene(new)) => (scene, stale) = (Some(new), true),
                Ok(News::End) => return Ok(()),
                // The reader ends first only by a panic, which has restored the terminal.
                Err(_) if looking.is_finished() => return Err(std::io::Error::other("the reader ended")),
                Err(_) => break,
            }
        }
        if stale {
            terminal.draw(|frame| match &scene {
                Some(scene) => view::draw(scene, Some(&mut choice), frame.area(), frame.buffer_mut(), style),
                None => frame.render_widget("reading the runs", frame.area()),
            })?;
            stale = false;
        }
        if !event::poll(LISTEN)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => match asked(key) {
                Asked::Quit => return Ok(()),
                Asked::Move(to) => {
                    if let Some(scene) = &scene {
                        choice.go(to, scene);
                    }
                    stale = true;
                }
                Asked::Nothing => {}
            },
            Event::Resize(..) => stale = true,
            _ => {}
        }
    }
}

/// Request of a key.
enum Asked {
    Quit,
    Move(Move),
    Nothing,
}

fn asked(key: KeyEvent) -> Asked {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => Asked::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Asked::Quit,
        KeyCode::Up | KeyCode::Char('k') => Asked::Move(Move::By(-1)),
        KeyCode::Down | KeyCode::Char('j') => Asked::Move(Move::By(1)),
        KeyCode::PageUp => Asked::Move(Move::Pages(-1)),
        KeyCode::PageDown => Asked::Move(Move::Pages(1)),
        KeyCode::Home | KeyCode::Char('g') => Asked::Move(Move::First),
        KeyCode::End | KeyCode::Char('G') => Asked::Move(Move::Last),
        _ => Asked::Nothing,
    }
}

/// Passes on signals to terminate, so that the terminal is restored before the program ends.
#[cfg(unix)]
fn signals(news: Sender<News>) {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        runtime.block_on(async {
            let mut all: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
            std::future::poll_fn(|context| {
                if all.iter_mut().any(|one| one.poll_recv(context).is_ready()) {
                    return std::task::Poll::Ready(());
                }
                std::task::Poll::Pending
            })
            .await;
        });
        let _ = news.send(News::End);
    };
    // Without this thread, a signal ends the program as usual.
    let _ = thread::Builder::new().spawn(wait);
}

#[cfg(not(unix))]
fn signals(_news: Sender<News>) {}
