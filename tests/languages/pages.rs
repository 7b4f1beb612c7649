//! Every command that README and the pages below docs show is run as it is printed, one after the other in one
//! folder: what README's own commands leave is what later pages look at. Results tell of what was run on their day, and
//! are left out.
//!
//! A command that no test can run is in `ELSEWHERE`, with the reason. That list is checked, too.

use std::fs;
use std::path::Path;

use allot_authoring::language::Language;

use crate::page::{Block, Checkout, FAIR, blocks, heading, shorten};
use crate::{scratch, tools};

/// Commands that are not run here: the page, how they begin, and why.
const ELSEWHERE: [(&str, &str, &str); 61] = [
    ("README.md", "cargo xtask dist", "it builds everything; .ci/run does"),
    ("README.md", "cargo xtask test", "it runs this test"),
    ("README.md", "cargo install", "it builds the program a second time"),
    ("README.md", "pip install", "it needs a release; .ci/run tries it"),
    (
        "README.md",
        "trainer.v1.trainer_mode",
        "it needs verl; tests/python/test_readme.py holds it to the adapter",
    ),
    (
        "README.md",
        "python -m allot.slime_train",
        "it needs slime; tests/python/test_readme.py holds it to the adapter",
    ),
    ("docs/contributing.md", "eval", "it fetches compilers; .ci/run does"),
    ("docs/contributing.md", "cargo test", "it runs tests"),
    ("docs/contributing.md", "rustup", "it fetches a standard library"),
    ("docs/contributing.md", ".ci/arm64", "it fetches QEMU, and wants a release for ARM"),
    ("docs/contributing.md", "cargo xtask", "it builds everything; .ci/run does"),
    ("docs/contributing.md", "RUSTC_WRAPPER", "it builds everything; .ci/run does"),
    ("docs/contributing.md", "git", "it releases"),
    ("docs/contributing.md", "pip install", "it needs a package index; .ci/run builds the book"),
    ("docs/contributing.md", "mdbook", "it needs mdBook; .ci/run builds the book"),
    (
        "docs/how-to/comparing.md",
        "allot compare --runs",
        "it needs runs of TRL; tests/compare/finished.rs has such",
    ),
    (
        "docs/how-to/comparing.md",
        "allot compare configs/mine.toml",
        "it needs a cluster; tests/executors.rs has one of its own",
    ),
    (
        "docs/how-to/comparing.md",
        "RAY_ADDRESS=",
        "it needs a cluster; tests/executors.rs has a server that answers as Ray's",
    ),
    ("docs/how-to/comparing.md", "allot compare --resume /shared", "it needs a cluster"),
    ("docs/how-to/cuda.md", "CUDA_COMPUTE_CAP=90 cargo build", "it needs NVIDIA's compiler"),
    (
        "docs/how-to/cuda.md",
        "pip install --no-deps --target cuda",
        "it needs a package index and fetches gigabytes",
    ),
    ("docs/how-to/cuda.md", "export", "it is about what was fetched"),
    ("docs/how-to/cuda.md", "python3 -c \"import nvidia", "it is about what was fetched"),
    ("docs/how-to/cuda.md", "LD_LIBRARY_PATH=", "it needs NVIDIA's libraries"),
    ("docs/how-to/cuda.md", "ALLOT_DEVICE=cuda", "it needs a GPU"),
    ("docs/how-to/cuda.md", "cargo", "it needs NVIDIA's compiler"),
    ("docs/how-to/cuda.md", "mkdir programs", "it needs what was built for a GPU"),
    ("docs/how-to/cuda.md", "strip programs", "it needs what was built for a GPU"),
    ("docs/how-to/cuda.md", "benches/cuda/run", "it needs a GPU"),
    ("docs/how-to/cuda.md", "allot bench", "it needs a GPU"),
    ("docs/how-to/python.md", "cargo xtask", "it builds everything; .ci/run does"),
    ("docs/how-to/python.md", "pip install", "it needs a release; .ci/run tests the wheel"),
    ("docs/how-to/slime.md", "python -m allot", "it needs slime; tests/python has slime's part"),
    ("docs/how-to/miles.md", "hf download", "it fetches a model and a data set"),
    ("docs/how-to/miles.md", "python -m allot", "it needs miles and GPUs; tests/python has miles' part"),
    ("docs/how-to/recipes.md", "duckdb", "it needs DuckDB"),
    ("docs/how-to/recipes.md", "allot train mine.toml --policy adarft", "it needs what DuckDB makes"),
    ("docs/how-to/recipes.md", "allot grade", "it needs Python; tests/grade.rs grades by functions"),
    (
        "docs/how-to/recipes.md",
        "allot train rewarded.toml",
        "it needs Python; tests/functions.rs trains by functions",
    ),
    ("docs/how-to/your-row.md", "allot compare w1.toml", "it needs a config that the reader writes"),
    ("docs/how-to/your-row.md", "allot report my-rule-w1", "it needs that comparison"),
    ("docs/how-to/scaling.md", "python -m sglang", "it needs SGLang and a GPU"),
    ("docs/reference/chat-templates.md", "python tests", "it needs transformers"),
    ("docs/reference/chat-templates.md", "ALLOT_CHAT", "it needs what was recorded"),
    ("docs/reference/outputs.md", "duckdb", "it needs DuckDB"),
    (
        "docs/reference/outputs.md",
        "python -m allot.follow",
        "it needs the wheel and a client; tests/python/test_follow.py follows a run",
    ),
    (
        "docs/how-to/bank.md",
        "allot bank rollouts.csv",
        "it needs a file of the reader's; tests/bank.rs has one",
    ),
    ("docs/how-to/bank.md", "duckdb", "it needs DuckDB"),
    (
        "docs/how-to/writing-a-policy.md",
        "allot pack ./rookie.wasm --push",
        "it needs an account; tests/registry.rs has a registry",
    ),
    (
        "docs/how-to/writing-a-policy.md",
        "allot simulate configs/simulate.toml --policy oci:",
        "it needs what was pushed",
    ),
    ("docs/how-to/scaling.md", "VLLM_SERVER_DEV_MODE", "it needs vLLM and a GPU"),
    (
        "docs/how-to/verl.md",
        "python -m verl.trainer",
        "it needs verl, a model and GPUs; tests/python/test_verl_whole.py has a small one",
    ),
    ("docs/how-to/verl.md", "eval", "it fetches gigabytes"),
    ("docs/how-to/verl.md", "\"$ALLOT_TRAINERS\"", "it needs verl"),
    ("docs/how-to/verl.md", "ALLOT=", "it needs verl"),
    ("docs/how-to/verl.md", "python tests/python/verl_on_gpu.py", "it needs a GPU"),
    (
        "docs/how-to/openrlhf.md",
        "python3 -m openrlhf.cli",
        "it needs OpenRLHF, a model and GPUs; tests/python/test_openrlhf_whole.py has a small one",
    ),
    ("docs/how-to/openrlhf.md", "eval", "it fetches gigabytes"),
    ("docs/how-to/openrlhf.md", "\"$ALLOT_TRAINERS\"", "it needs OpenRLHF"),
    ("docs/how-to/openrlhf.md", "ALLOT=", "it needs OpenRLHF"),
    ("docs/tutorial.md", "pip install", "it needs a release and a package index; .ci/toolchains does"),
];

/// The commands of a block: a line each, or more where a line ends in a backslash or within quotes.
fn commands(block: &Block) -> Vec<String> {
    let (mut all, mut open) = (Vec::new(), String::new());
    for line in block.text.lines() {
        open.push_str(line);
        let whole = |mark| open.matches(mark).count() % 2 == 0;
        if line.ends_with('\\') || !(whole('\'') && whole('"')) {
            open.push('\n');
        } else {
            all.extend(Some(std::mem::take(&mut open)).filter(|command| !command.trim().is_empty()));
        }
    }
    assert!(open.is_empty(), "a command without an end:\n{open}");
    all
}

/// All commands of README and docs, with the page that each is on; results, and those of a language, left out.
fn printed() -> Vec<(String, String)> {
    let root = scratch::root();
    let mut docs = Vec::new();
    for folder in ["docs", "docs/contributing", "docs/explanation", "docs/how-to", "docs/reference"] {
        let files = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        let pages = files.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
        docs.extend(pages.map(|path| format!("{folder}/{}", path.file_name().unwrap().to_str().unwrap())));
    }
    docs.sort();
    // This one has a folder of its own.
    docs.retain(|page| page != "docs/how-to/any-language.md");
    let pages = [vec!["README.md".to_owned()], docs].concat();
    let languages = Language::ALL.map(heading);
    let of = |page: &String| {
        let all = blocks(&fs::read_to_string(root.join(page)).unwrap());
        let own = all.into_iter().filter(|block| !languages.contains(&block.heading.as_str()));
        own.flat_map(|block| commands(&block)).map(|command| (page.clone(), command)).collect::<Vec<_>>()
    };
    pages.iter().flat_map(of).collect()
}

/// Why a command is not run here.
fn elsewhere(page: &str, command: &str) -> Option<&'static str> {
    let one = ELSEWHERE.iter().find(|(on, begins, _)| *on == page && command.starts_with(begins));
    one.map(|(.., why)| *why)
}

#[test]
fn what_is_not_run_is_on_the_pages_and_run_nowhere() {
    let printed = printed();
    assert!(printed.len() > 50, "{} commands were found", printed.len());
    for (page, begins, why) in ELSEWHERE {
        let there = printed.iter().any(|(on, command)| on == page && command.starts_with(begins));
        assert!(there, "`{begins}` is not on {page} any more; it was left out because {why}");
    }
}

#[test]
fn every_command_of_every_page_works_as_it_is_printed() {
    let checkout = Checkout::new("all");
    // What the commands of a language make, as any component.
    fs::copy(scratch::root().join("policies/prebuilt/uniform.wasm"), checkout.folder.join("rookie.wasm"))
        .unwrap();
    let mut projects = Projects::of(|_| true);
    run_all(&checkout, |command| !projects.has(command));
    assert!(checkout.folder.join("runs/compare-tiny-001/report/index.html").is_file());
}

#[test]
fn every_command_about_a_project_works_where_its_language_is_here() {
    let checkout = Checkout::new("projects");
    let (mut projects, mut unbuilt) = (Projects::of(|_| true), Projects::of(tools::missing));
    run_all(&checkout, |command| projects.has(command) && !unbuilt.has(command));
    assert!(projects.names.len() > 3, "{:?}", projects.names);
}

/// Runs the commands that are chosen, in the order of the pages.
fn run_all(checkout: &Checkout, mut chosen: impl FnMut(&str) -> bool) {
    cargo_that_runs_what_is_built(&checkout.folder.join("bin"));
    for (page, command) in printed() {
        if elsewhere(&page, &command).is_some() || !chosen(&command) {
            continue;
        }
        if command.contains("--resume runs/quickstart-001") {
            killed(&checkout.folder.join("runs/quickstart-001"));
        }
        // A replay that finds a difference says so by its exit code.
        let differs = if command.starts_with("allot replay") { "\n[ $? -le 1 ]" } else { "" };
        let command = if differs.is_empty() { command } else { format!("set +e; {command}{differs}") };
        checkout.run(&page, &command);
        if command.starts_with("allot new two-looks") {
            fs::write(checkout.folder.join("two-looks/policy.py"), policy_of_the_readme()).unwrap();
        }
        if command == "allot configs compare-quickstart > mine.toml" {
            shorten(&checkout.folder.join("mine.toml"), "compare-quickstart.toml");
        }
        if command.ends_with(&format!("> {FAIR}")) {
            shorten(&checkout.folder.join(FAIR), FAIR);
        }
    }
}

/// The policy that README prints.
fn policy_of_the_readme() -> String {
    let readme = fs::read_to_string(scratch::root().join("README.md")).unwrap();
    let (_, section) = readme.split_once("\n## A policy\n").unwrap();
    let (_, code) = section.split_once("```python\n").unwrap();
    code.split_once("```").unwrap().0.to_owned()
}

/// Projects in some languages, and all that comes of them.
struct Projects {
    of: fn(Language) -> bool,
    names: Vec<String>,
}

impl Projects {
    /// Those in languages of which this is true.
    fn of(of: fn(Language) -> bool) -> Self {
        Self { of, names: Vec::new() }
    }

    /// Whether a command is about one of them. What it makes is then one of them, too.
    fn has(&mut self, command: &str) -> bool {
        let words: Vec<&str> = command.split_whitespace().collect();
        let after = |option: &str| {
            let at = words.iter().position(|word| *word == option)?;
            words.get(at + 1).copied()
        };
        let started = command.starts_with("allot new").then(|| after("--lang").unwrap_or("rust"));
        let its = |language: &Language| crate::name(*language) == started.unwrap_or_default();
        if Language::ALL.into_iter().find(its).is_some_and(self.of) {
            self.names.extend(after("new").map(str::to_owned));
            return true;
        }
        let about = self.names.iter().any(|name| command.contains(name.as_str()));
        if about {
            let made = [after(">"), after("--out"), after("-o")].into_iter().flatten();
            self.names.extend(made.map(|file| file.split('.').next().unwrap_or(file).to_owned()));
        }
        about
    }
}

/// Leaves a run as a kill before its last checkpoint does: there is something to go on with.
fn killed(run: &Path) {
    let checkpoints = fs::read_dir(run.join("checkpoints")).unwrap().map(|entry| entry.unwrap().path());
    let mut checkpoints: Vec<_> = checkpoints.collect();
    checkpoints.sort();
    assert!(checkpoints.len() > 1, "{checkpoints:?}");
    fs::remove_dir_all(checkpoints.pop().unwrap()).unwrap();
}

/// `cargo run --release --locked -- …` builds the program first. Here it is built already.
fn cargo_that_runs_what_is_built(bin: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = bin.join("cargo");
    let script = "#!/bin/sh\n[ \"$1 $2 $3 $4\" = 'run --release --locked --' ] || exit 2\nshift 4\nexec allot \"$@\"\n";
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}
