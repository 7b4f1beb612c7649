//! What a template may take: templates come with models and data sets, from people whom nobody here knows.
//!
//! Its source has a length, its work fuel, and what it writes an end. Not bounded is a text that it joins to itself
//! again and again without writing it.

use std::cell::Cell;
use std::io;

use minijinja::{Environment, Error, ErrorKind, Output, State, Template, Value};

/// The longest source, in bytes. The longest chat template that is published has some 20 kB.
const LONGEST: usize = 128 << 10;
/// Stack for each byte of a source: a term and its operator take two, and a call each of parser, compiler and drop.
const STACK_A_BYTE: usize = 2 << 10;
/// Instructions of one rendering; a long conversation takes some ten thousand.
const FUEL: u64 = 1_000_000;
/// Calls inside calls: of macros, and of loops that call themselves.
const DEPTH: usize = 100;
/// Bytes that one rendering writes at most, into what it captures as well.
const MOST: usize = 64 << 20;

thread_local! {
    /// What this thread's rendering has written of values so far.
    static WRITTEN: Cell<usize> = const { Cell::new(0) };
}

/// Sets the bounds of an environment.
pub fn bound(environment: &mut Environment<'_>) {
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(DEPTH);
    environment.set_formatter(|out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value| {
        if let Some(text) = value.as_str() {
            let written = WRITTEN.get() + text.len();
            if written > MOST {
                return Err(too_long());
            }
            WRITTEN.set(written);
        }
        minijinja::escape_formatter(out, state, value)
    });
}

/// Parses a source, or looks through one that was parsed, on a stack that is large enough for it.
pub fn parsed<T: Send>(source: &str, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let bytes = source.len();
    if bytes > LONGEST {
        let what = format!("it has {bytes} bytes; a template has at most {LONGEST}");
        return Err(Error::new(ErrorKind::SyntaxError, what));
    }
    let stack = (1 << 20) + STACK_A_BYTE * bytes;
    let failed = |why: String| Error::new(ErrorKind::InvalidOperation, why);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| failed(format!("no thread to parse it: {e}")))?;
        thread.join().map_err(|_| failed("its parser failed".to_owned()))?
    })
}

/// Renders a template.
pub fn rendered(template: &Template<'_, '_>, context: impl Into<Value>) -> Result<String, Error> {
    WRITTEN.set(0);
    let mut out = Bounded(Vec::new());
    match template.render_captured_to(context, &mut out) {
        Err(_) if out.0.len() >= MOST => return Err(too_long()),
        done => done?,
    };
    String::from_utf8(out.0).map_err(|_| Error::new(ErrorKind::InvalidOperation, "it writes no text"))
}

fn too_long() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("it writes more than {MOST} bytes"))
}

/// Takes so many bytes, and no more.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MOST - self.0.len();
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room { Err(io::Error::other("it is full")) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
