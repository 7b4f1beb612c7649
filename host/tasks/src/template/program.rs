//! The program of a template: minijinja's instructions, with limits for those that make text or lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::machinery::{CompiledTemplate, Instruction, Instructions, TemplateConfig};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Error, Value};
use self_cell::self_cell;

use super::source::ONCE;
use super::{Dialect, filters, made};

/// Number of the first of these filters; minijinja has fifty numbers.
const FIRST: u8 = 40;

/// The instructions of a source.
pub(super) struct Program<'a> {
    pub main: Instructions<'a>,
    pub blocks: BTreeMap<&'a str, Instructions<'a>>,
}

self_cell! {
    /// A source with its instructions.
    pub(super) struct Compiled {
        owner: String,
        #[covariant]
        dependent: Program,
    }
}

/// Compiles a source.
pub(super) fn compiled(source: String, syntax: &SyntaxConfig, dialect: Dialect) -> Result<Compiled, Error> {
    let config = TemplateConfig {
        syntax_config: syntax.clone(),
        default_auto_escape: Arc::new(|_: &str| AutoEscape::None),
    };
    Compiled::try_new(source, |source| {
        let plain = CompiledTemplate::new("template", source, &config)?;
        let blocks = plain.blocks.iter().map(|(name, block)| (*name, bounded(block, dialect)));
        Ok(Program { main: bounded(&plain.instructions, dialect), blocks: blocks.collect() })
    })
}

/// Returns the instructions with limits.
fn bounded<'a>(plain: &Instructions<'a>, dialect: Dialect) -> Instructions<'a> {
    let code = || (0..).map_while(|at| plain.get(at));
    // New index of each instruction, and the end of the last one.
    let mut places = vec![0];
    for instruction in code() {
        places.push(places[places.len() - 1] + replaced(instruction, dialect).len() as u32);
    }
    let place = |at: u32| places[at as usize];
    // minijinja caches filters by number, and has numbered those that the template names.
    let named = code().filter_map(|instruction| match instruction {
        Instruction::ApplyFilter(_, _, number) if *number != !0 => Some(*number),
        _ => None,
    });
    let is_free = named.max().is_none_or(|last| last < FIRST);
    let mut out = Instructions::new(plain.name(), plain.source());
    for (at, instruction) in (0..).zip(code()) {
        for mut instruction in replaced(instruction, dialect) {
            match &mut instruction {
                Instruction::Jump(to)
                | Instruction::JumpIfFalse(to)
                | Instruction::JumpIfFalseOrPop(to)
                | Instruction::JumpIfTrueOrPop(to)
                | Instruction::Iterate(to)
                | Instruction::BuildMacro(_, to, _) => *to = place(*to),
                Instruction::ApplyFilter(name, _, number) if is_free && *number == !0 => {
                    let at = filters::ALL.iter().position(|own| own == name);
                    *number = at.map_or(!0, |at| FIRST + at as u8);
                }
                _ => {}
            }
            match (plain.get_span(at), plain.get_line(at)) {
                (Some(span), _) => out.add_with_span(instruction, span),
                (None, Some(line)) => out.add_with_line(instruction, line as u16),
                (None, None) => out.add(instruction),
            };
        }
    }
    out
}

/// Returns the replacement of an instruction.
fn replaced<'a>(instruction: &Instruction<'a>, dialect: Dialect) -> Vec<Instruction<'a>> {
    let filter = |name: &'static str, arguments: u16| Instruction::ApplyFilter(name, Some(arguments), !0);
    match instruction {
        // The formatter counts emitted values.
        Instruction::EmitRaw(text) => vec![Instruction::LoadConst(Value::from(*text)), Instruction::Emit],
        Instruction::Add => vec![filter(filters::ADD, 2)],
        Instruction::Mul => vec![filter(filters::MULTIPLY, 2)],
        Instruction::Rem => vec![filter(filters::REMAINDER, 2)],
        Instruction::Slice => vec![filter(filters::SLICE, 4)],
        Instruction::In | Instruction::CompareAndPreserve(_) => {
            vec![filter(filters::PAIR, 2), Instruction::UnpackList(2), instruction.clone()]
        }
        Instruction::StringConcat => vec![filter(filters::CONCATENATE, 2)],
        Instruction::PushLoop(_) if dialect == Dialect::Transformers => {
            vec![filter(filters::ITEMS, 1), instruction.clone()]
        }
        // A lazy sum of constant lists.
        Instruction::LoadConst(value) if value.kind() == ValueKind::Iterable => {
            let items = value.try_iter().map(Iterator::collect::<Vec<Value>>).unwrap_or_default();
            vec![Instruction::LoadConst(items.into())]
        }
        Instruction::ApplyFilter(ONCE, ..) => vec![],
        // `range` is lazy, with at most a hundred thousand numbers.
        Instruction::CallFunction("range", _) => vec![instruction.clone()],
        // `{% set x.name = … %}`: the namespace is above the value on the stack.
        Instruction::SetAttr(_) => {
            vec![Instruction::Swap, filter(made::STORED, 1), Instruction::Swap, instruction.clone()]
        }
        Instruction::ApplyFilter("batch" | "slice" | "groupby" | "zip" | "items" | "dictsort", ..)
        | Instruction::CallFunction(..)
        | Instruction::CallMethod(..)
        | Instruction::CallObject(..)
        | Instruction::BuildList(_)
        | Instruction::BuildTuple(_)
        | Instruction::BuildMap(_) => vec![instruction.clone(), filter(made::NESTED, 1)],
        Instruction::ApplyFilter(..) => vec![instruction.clone(), filter(made::COUNTED, 1)],
        _ => vec![instruction.clone()],
    }
}
