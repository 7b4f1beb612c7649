//! The SDKs' committed bindings are what wit-bindgen makes of the contract. They are committed so that an
//! author's build needs neither the generator nor its minutes. Python and JavaScript have none: their tools
//! make them, over classes that are held against the contract here.
//!
//! After a change of the WIT: `ALLOT_BLESS=1 cargo test --release --test bindings`.

use std::path::{Path, PathBuf};

use wit_bindgen_core::{Files, WorldGenerator};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("host/ lies in the workspace")
}

/// A contract's file and its world.
type Contract = (&'static str, &'static str);

const POLICY: Contract = ("wit/0.3/allocation.wit", "policy");
const GRADER: Contract = ("wit/reward/0.2/reward.wit", "reward");

/// What a generator makes of a contract.
fn generated((file, world): Contract, mut generator: Box<dyn WorldGenerator>) -> Files {
    let mut resolve = wit_parser::Resolve::default();
    let (package, _) = resolve.push_path(root().join(file)).expect("the contract parses");
    let world = resolve.select_world(&[package], Some(world)).expect("the contract has this world");
    let mut files = Files::default();
    generator.generate(&mut resolve, world, &mut files).expect("the generator runs");
    files
}

/// Each of these files is committed with these very bytes.
fn committed(files: impl IntoIterator<Item = (PathBuf, Vec<u8>)>) {
    for (path, fresh) in files {
        let path = root().join(path);
        if std::env::var_os("ALLOT_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("it can be made");
            std::fs::write(&path, &fresh).expect("the bindings can be written");
        }
        let known = std::fs::read(&path).unwrap_or_default();
        assert!(
            known == fresh,
            "{} is stale; run: ALLOT_BLESS=1 cargo test --release --test bindings",
            path.display()
        );
    }
}

#[test]
fn sdk_bindings_match_the_contract() {
    for (contract, file) in
        [(POLICY, "policies/sdk/rust/src/bindings.rs"), (GRADER, "policies/sdk/rust/grader/src/bindings.rs")]
    {
        rust_bindings_match(contract, file);
    }
}

fn rust_bindings_match(contract: Contract, file: &str) {
    let opts = wit_bindgen_rust::Opts {
        generate_all: true,
        pub_export_macro: true,
        export_macro_name: Some("export_component".to_owned()),
        default_bindings_module: Some("$crate::bindings".to_owned()),
        additional_derive_attributes: vec!["PartialEq".to_owned()],
        format: true,
        ..Default::default()
    };
    let files = generated(contract, Box::new(opts.build()));
    let (_, fresh) = files.iter().next().expect("the generator gives one file");
    committed([(file.into(), fresh.to_owned())]);
}

#[test]
fn c_bindings_match_the_contract() {
    for (contract, expected) in [(POLICY, ["policy.c", "policy.h"]), (GRADER, ["reward.c", "reward.h"])] {
        let opts = wit_bindgen_c::Opts { no_object_file: true, ..Default::default() };
        let files = generated(contract, opts.build());
        let folder = Path::new("policies/sdk/c/gen");
        let names: Vec<&str> = files.iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected);
        committed(files.iter().map(|(name, bytes)| (folder.join(name), bytes.to_owned())));
    }
}

#[test]
fn go_bindings_match_the_contract() {
    for (contract, package) in [(POLICY, "wit"), (GRADER, "grader/wit")] {
        let opts = wit_bindgen_go::Opts {
            format: wit_bindgen_go::Format::False,
            pkg_name: Some(format!("allot/{package}")),
            ..Default::default()
        };
        let files = generated(contract, opts.build());
        let folder = Path::new("policies/sdk/go").join(package);
        // The generator's own helpers lie beside what it makes for policies, so that nothing is fetched.
        let ours = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            text.replace("go.bytecodealliance.org/pkg/wit/", "allot/wit/").into_bytes()
        };
        assert!(files.iter().count() > 3);
        committed(files.iter().map(|(name, bytes)| (folder.join(name), ours(bytes))));
    }
}

/// Records that a policy is shown.
const SHOWN: [&str; 13] = [
    "run",
    "column",
    "sampling",
    "sampling-range",
    "update",
    "view",
    "tally",
    "budget",
    "prompt",
    "past",
    "group",
    "turn",
    "origin",
];

/// Records of a contract that an author is shown, and the file of an SDK that has them.
struct Shown<'s> {
    contract: &'s str,
    records: &'s [&'s str],
    file: &'s str,
}

impl<'s> Shown<'s> {
    fn to_policies(file: &'s str) -> Self {
        Self { contract: POLICY.0, records: &SHOWN, file }
    }

    fn to_graders(file: &'s str) -> Self {
        Self { contract: GRADER.0, records: &["question"], file }
    }
}

/// The contract's records that an author is shown have these fields, as a language spells them, in its SDK.
fn shown_alike(
    Shown { contract, records, file }: &Shown<'_>,
    open: impl Fn(&str) -> String,
    indent: &str,
    spelled: impl Fn(&str) -> String,
) {
    let mut resolve = wit_parser::Resolve::default();
    resolve.push_path(root().join(contract)).expect("the contract parses");
    let text = std::fs::read_to_string(root().join(file)).expect("the SDK is there");
    for kind in *records {
        let (_, known) = resolve
            .types
            .iter()
            .find(|(_, known)| known.name.as_deref() == Some(*kind))
            .expect("the contract has it");
        let wit_parser::TypeDefKind::Record(record) = &known.kind else { panic!("`{kind}` is a record") };
        let fields: Vec<String> = record.fields.iter().map(|field| spelled(&field.name)).collect();

        let class =
            kind.split('-').fold(String::new(), |class, word| class + &word[..1].to_uppercase() + &word[1..]);
        let (_, body) = text.split_once(&open(&class)).unwrap_or_else(|| panic!("{file} has no {class}"));
        let ends = |line: &&str| line.is_empty() || line.starts_with(' ');
        let lines = body.lines().skip(1).take_while(ends).filter_map(|line| line.strip_prefix(indent));
        let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let ours: Vec<&str> = lines
            .filter_map(|line| line.split_once(": "))
            .filter_map(|(field, _)| field.chars().all(name).then_some(field))
            .collect();
        assert_eq!(ours, fields, "{file}: {class}");
    }
}

#[test]
fn views_in_python_have_the_contract_s_fields() {
    for shown in [
        Shown::to_policies("policies/sdk/python/allot_policy/view.py"),
        Shown::to_graders("policies/sdk/python/allot_grader/verdict.py"),
    ] {
        shown_alike(&shown, |class| format!("\nclass {class}:"), "    ", |field| field.replace('-', "_"));
    }
}

#[test]
fn views_in_javascript_have_the_contract_s_fields() {
    let camel = |field: &str| {
        let mut words = field.split('-').map(str::to_owned);
        let first = words.next().unwrap_or_default();
        first + &words.map(|word| word[..1].to_uppercase() + &word[1..]).collect::<String>()
    };
    for shown in [
        Shown::to_policies("policies/sdk/js/types.d.ts"),
        Shown::to_graders("policies/sdk/js/grader/types.d.ts"),
    ] {
        shown_alike(&shown, |class| format!("export interface {class} {{"), "  ", camel);
    }
}
