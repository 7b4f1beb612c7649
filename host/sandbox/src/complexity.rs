//! Bounds on a component's size, checked before it is compiled: a small file can hold a function that takes
//! gigabytes and minutes to compile. The bounds lie far above what compilers produce from ordinary code,
//! interpreters included. Over CPython, SpiderMonkey and a Wasm parser in Wasm, the maxima are 426,843
//! bytes, 483 local variables, loops nested 13 deep, 3,137,006 values in a function and 36,714,250 in a
//! component. A function at the bounds takes some seconds and a gigabyte to compile.
//!
//! The expensive part is one value for each local variable in each block: the compiler visits all of them
//! where blocks meet. Their product is therefore what is bounded.

use wasmparser::{CompositeInnerType, FunctionBody, Operator, Payload};

use crate::LoadError;

/// Most bytes of a function's body.
const BODY: usize = 2 << 20;
/// Most local variables of a function, without its parameters.
const LOCALS: u64 = 5_000;
/// Deepest nesting of loops.
const DEPTH: u64 = 100;
/// Most values of a function, as [`Counted::values`] counts them.
const VALUES: u64 = 1 << 24;
/// Most values of all functions together.
const ALL_VALUES: u64 = 1 << 28;

/// Counts over a component's functions, updated with each payload.
#[derive(Default)]
pub(crate) struct Complexity {
    /// For each open module, the largest number of parameters and results of one of its function types.
    arity: Vec<u64>,
    functions: u64,
    values: u64,
}

/// Counts of one function.
#[derive(Default)]
struct Counted {
    locals: u64,
    blocks: u64,
    calls: u64,
    depth: u64,
}

impl Counted {
    /// Returns local variables times blocks. Parameters and results of blocks and calls count as values
    /// too. Nested loops multiply the product: the compiler visits a block once per loop.
    fn values(&self, arity: u64) -> u64 {
        (self.locals + arity) * self.blocks * (1 + self.depth) + arity * self.calls
    }
}

impl Complexity {
    /// Counts the next payload. Returns an error if something in it is too large.
    pub fn take(&mut self, payload: &Payload<'_>) -> Result<(), LoadError> {
        let damaged = |e: wasmparser::BinaryReaderError| LoadError::damaged(&e);
        match payload {
            Payload::Version { .. } => self.arity.push(0),
            Payload::End(_) => _ = self.arity.pop(),
            Payload::TypeSection(types) => {
                for group in types.clone() {
                    for kind in group.map_err(damaged)?.types() {
                        if let CompositeInnerType::Func(f) = &kind.composite_type.inner
                            && let Some(most) = self.arity.last_mut()
                        {
                            *most = (*most).max((f.params().len() + f.results().len()) as u64);
                        }
                    }
                }
            }
            Payload::CodeSectionEntry(body) => self.weigh(body)?,
            _ => {}
        }
        Ok(())
    }

    fn weigh(&mut self, body: &FunctionBody<'_>) -> Result<(), LoadError> {
        self.functions += 1;
        let nth = self.functions;
        let over = |what: &str, found: u64, most: u64| {
            Err(LoadError::TooHeavy(format!("its function {nth} has {found} {what}; the limit is {most}")))
        };
        let bytes = body.range().len();
        if bytes > BODY {
            return over("bytes", bytes as u64, BODY as u64);
        }
        let counted = count(body).map_err(|e| LoadError::damaged(&e))?;
        if counted.locals > LOCALS {
            return over("local variables", counted.locals, LOCALS);
        }
        if counted.depth > DEPTH {
            return over("nested loops", counted.depth, DEPTH);
        }
        let values = counted.values(self.arity.last().copied().unwrap_or(0));
        if values > VALUES {
            return over("local variables by blocks", values, VALUES);
        }
        self.values += values;
        if self.values > ALL_VALUES {
            let what = format!("its functions have {} local variables by blocks", self.values);
            return Err(LoadError::TooHeavy(format!("{what}; the limit is {ALL_VALUES}")));
        }
        Ok(())
    }
}

fn count(body: &FunctionBody<'_>) -> wasmparser::Result<Counted> {
    let mut counted = Counted::default();
    for locals in body.get_locals_reader()? {
        counted.locals += u64::from(locals?.0);
    }
    // For each open block, whether it is a loop.
    let mut open = Vec::new();
    let mut depth = 0;
    let mut operators = body.get_operators_reader()?;
    while !operators.eof() {
        match operators.read()? {
            Operator::Loop { .. } => {
                open.push(true);
                depth += 1;
                counted.blocks += 1;
                counted.depth = counted.depth.max(depth);
            }
            Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                open.push(false);
                counted.blocks += 1;
            }
            Operator::Else | Operator::BrIf { .. } | Operator::BrTable { .. } => counted.blocks += 1,
            Operator::Call { .. } | Operator::CallIndirect { .. } | Operator::CallRef { .. } => {
                counted.calls += 1;
            }
            Operator::End => depth -= u64::from(open.pop().unwrap_or(false)),
            _ => {}
        }
    }
    Ok(counted)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stderr)]
mod tests {
    use wasmparser::Parser;

    use super::*;

    /// Returns the maxima over functions: bytes, locals, loop depth, values; and the sum of all values.
    fn largest(bytes: &[u8]) -> [u64; 5] {
        let (mut scales, mut most) = (Complexity::default(), [0; 5]);
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.unwrap();
            scales.take(&payload).unwrap();
            if let Payload::CodeSectionEntry(body) = &payload {
                let counted = count(body).unwrap();
                let values = counted.values(scales.arity.last().copied().unwrap_or(0));
                let found = [body.range().len() as u64, counted.locals, counted.depth, values, 0];
                most.iter_mut().zip(found).for_each(|(most, found)| *most = (*most).max(found));
            }
        }
        most[4] = scales.values;
        most
    }

    /// Shipped components must stay below a tenth of each bound. `ALLOT_HEAVY` lists more components or
    /// modules, such as interpreters, separated by colons; they must stay below half.
    #[test]
    fn what_compilers_make_is_far_below_the_bounds() {
        let bounds = [BODY as u64, LOCALS, DEPTH, VALUES, ALL_VALUES];
        let below = |name: &str, bytes: &[u8], times: u64| {
            let most = largest(bytes);
            eprintln!("{name}: {most:?} of {bounds:?}");
            assert!(most.iter().zip(bounds).all(|(most, bound)| most * times < bound), "{name}: {most:?}");
        };
        for name in crate::shipped::names() {
            below(name, crate::shipped::component(name).unwrap(), 10);
        }
        for path in std::env::var("ALLOT_HEAVY").unwrap_or_default().split(':').filter(|p| !p.is_empty()) {
            below(path, &std::fs::read(path).unwrap(), 2);
        }
    }
}
