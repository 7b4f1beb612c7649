//! Templates of models and data sets, which are untrusted.
//!
//! Jinja, rendered within limits on the source's length, on instructions and on the bytes that a rendering
//! makes. minijinja limits only instructions. So each template is compiled to a program in which every
//! instruction that makes text or a list goes through a filter that counts first.

mod filters;
mod json;
mod made;
mod program;
mod shown;
mod source;

pub use filters::{format, join, replace, string, times};
pub use source::newlines;

use allot_base::panics::caught;
use minijinja::machinery::{eval, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use program::Compiled;
use source::plain;

/// Longest source, in bytes. The longest published chat template has some 20 kB.
const LONGEST: usize = 128 << 10;
/// Stack per byte of a source. A term and its operator take two, and calls of parser, compiler and drop.
const STACK_A_BYTE: usize = 2 << 10;
/// Maximum number of instructions of a rendering; a long conversation takes some ten thousand.
const FUEL: u64 = 1_000_000;
/// Maximum depth of calls: of macros, and of recursive loops.
const CALLS: usize = 100;

/// A dialect of Jinja.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// minijinja's: `none` as a text or list has no characters or items.
    Plain,
    /// transformers': it has `{% generation %}`, and a loop over `none` is an error.
    Transformers,
}

/// A compiled template.
pub struct Template {
    environment: Environment<'static>,
    compiled: Compiled,
    syntax: SyntaxConfig,
}

impl Template {
    /// Compiles a source. `more` adds functions and filters for the template.
    pub fn parse(
        source: &str,
        dialect: Dialect,
        syntax: SyntaxConfig,
        more: impl FnOnce(&mut Environment<'static>),
    ) -> Result<Self, Error> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(CALLS);
        environment.set_syntax(syntax.clone());
        filters::add(&mut environment);
        more(&mut environment);
        let text = plain(source, dialect);
        let compiled = on_a_stack(source, || program::compiled(text, &syntax, dialect))?;
        Ok(Self { environment, compiled, syntax })
    }

    /// Renders the template.
    pub fn rendered(&self, context: impl Into<Value>) -> Result<String, Error> {
        made::begin();
        let mut text = String::new();
        let mut out = make_string_output(&mut text);
        let program = self.compiled.borrow_dependent();
        let context = context.into();
        let eval =
            || eval(&self.environment, &program.main, context, &program.blocks, &mut out, AutoEscape::None);
        // minijinja panics at a few things, such as `loop.cycle()`.
        let done = caught(eval).unwrap_or_else(|said| Err(invalid(format!("it can't be rendered: {said}"))));
        // If the limit was exceeded, that is the cause of any other error.
        made::within()?;
        done?;
        Ok(text)
    }

    /// Returns the template's undeclared variables, sorted.
    pub fn variables(&self) -> Vec<String> {
        let source = self.compiled.borrow_owner();
        let mut environment = Environment::empty();
        environment.set_syntax(self.syntax.clone());
        let names = on_a_stack(source, || {
            let template = environment.template_from_str(source)?;
            Ok(template.undeclared_variables(false).into_iter().collect::<Vec<String>>())
        });
        let mut names = names.unwrap_or_default();
        names.sort_unstable();
        names
    }
}

/// Runs the parser on a source, or inspects a parsed one, on a stack that is large enough.
fn on_a_stack<T: Send>(source: &str, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let bytes = source.len();
    if bytes > LONGEST {
        let what = format!("it has {bytes} bytes; expected at most {LONGEST}");
        return Err(Error::new(ErrorKind::SyntaxError, what));
    }
    let stack = (1 << 20) + STACK_A_BYTE * bytes;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, || caught(work));
        let thread = thread.map_err(|e| invalid(format!("could not start a thread to parse it: {e}")))?;
        let done = thread.join().map_err(|_| invalid("its parser failed"))?;
        done.map_err(|said| invalid(format!("its parser failed: {said}")))?
    })
}

/// The error for an invalid operation in a template.
fn invalid(why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}
