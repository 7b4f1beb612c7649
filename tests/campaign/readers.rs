//! Files that are not what they should be, read in this process: as many as a campaign that starts a program for each can't try.
//! What reads them gives an error that names the file, or takes them; it does not panic, hang, or fill the memory.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use allot::forecast::Geometry;
use allot_bank::{Bank, Profile};
use allot_base::{Error, Result};
use allot_config::simulate::SimulateConfig;
use allot_config::train::TrainConfig;
use allot_engine::model::Checkpoint;
use allot_models::chat::ChatTemplate;
use allot_models::tokens::Tokens;
use allot_pretrain::Recipe;
use allot_record::{Line, Reader, Views};
use allot_tasks::dataset::Dataset;
use allot_tasks::grader::Grader;
use candle_core::Device;
use serde_json::{Map, Value, json};

use crate::files::{copy, made, write};
use crate::watch::{LONGEST, MOST_MEMORY, Watched, memory, watch};
use crate::{Chance, Class, Outcome, Place, jinja, logs, mangled, runs};

/// Files of one case: the folder of a case is made once for all of them.
pub const AT_ONCE: usize = 100;

/// A kind of file, and what reads it.
pub struct Readers {
    name: &'static str,
    /// Files of the repository, or folders of them; beside these, a class reads what it has prepared.
    files: &'static [&'static str],
    reads: Reads,
}

/// Reads a file in a folder of its own: the file it was made of, and the one that is read.
type Reads = fn(&Path, &Path, &mut Chance) -> Read;

pub enum Read {
    Taken,
    /// With these words.
    Refused(String),
    /// By words that name what is wrong, where no file is.
    Unnamed(String),
    /// A promise was broken.
    Broken(String),
}

/// All classes of this kind.
pub fn all() -> Vec<Readers> {
    let class = |name, files, reads| Readers { name, files, reads };
    vec![
        class(
            "read-configs",
            &["configs", "configs/evidence", "tests/cases/training", "tests/cases/campaign"],
            config,
        ),
        class("read-data", &["tests/cases/data"], data),
        class(
            "read-models",
            &[
                "tests/cases/gguf",
                "tests/cases/models/tiny-llama-tied",
                "tests/cases/models/tiny-qwen3-moe",
                "tests/cases/models/tiny-llama3-untied-sharded",
                "tests/cases/models/tiny-phi3",
                "tests/cases/models/tiny-gemma3",
            ],
            model,
        ),
        class("read-tokenizers", &["host/models/shipped/tiny-sums", "tests/cases/chat/qwen3"], tokenizer),
        class(
            "read-templates",
            &[
                "tests/cases/chat/qwen3",
                "tests/cases/chat/smollm2-135m-instruct",
                "tests/cases/chat/qwen2.5-coder-0.5b-instruct",
            ],
            template,
        ),
        class(
            "read-answers",
            &["tests/cases/graders/verifier_cases.jsonl", "tests/cases/graders/math_verify_cases.jsonl"],
            answers,
        ),
        class("read-logs", &["tests/cases/bank", "tests/cases/bank/slime"], log),
        class("read-records", &["tests/cases/campaign"], record),
    ]
}

impl Class for Readers {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&mut self, at: &Place<'_>) -> Result<()> {
        watch();
        match self.name {
            "read-logs" => logs::make(&at.reference),
            // A record of a run of some steps, small enough that each of its lines is met.
            "read-records" => {
                let folder = at.reference.join("run");
                let _ = std::fs::remove_dir_all(&folder);
                let words = ["simulate", "simulate", "-o", "budget.rollouts=400", "--out"];
                let words: Vec<&str> =
                    words.into_iter().chain([folder.to_str().unwrap_or_default()]).collect();
                let ended = runs::run(at.program, at.root, &words)?;
                if ended.code != Some(0) {
                    return Err(Error::new(format!("no record to mangle: {}", ended.said)));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
        for _ in 0..AT_ONCE {
            let from = match self.name {
                "read-records" => at.reference.join("run/record.jsonl"),
                "read-logs" if chance.below(4) > 0 => logs::any(&at.reference, chance)?,
                name => file_of(&at.root.join(chance.of_these(self.files)), name, chance)?,
            };
            let to = beside(&from, &at.folder)?;
            let mut bytes = std::fs::read(&from).map_err(|e| Error::file("read", &from, &e))?;
            mangled::mangle(&mut bytes, &from, chance);
            write(&to, &bytes)?;
            if let Some(what) = judged(&[&to], &mut kinds, || (self.reads)(&from, &to, chance)) {
                return Ok(Outcome::Broken(format!("{}: {what}", from.display())));
            }
        }
        Ok(Outcome::Many(kinds))
    }
}

/// Reads these files, of which an error names one, and counts how that ended. What is wrong with it, if anything is.
pub fn judged(
    files: &[&Path],
    kinds: &mut BTreeMap<String, u64>,
    read: impl FnOnce() -> Read,
) -> Option<String> {
    let began = Watched::begin();
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read))
        .unwrap_or_else(|_| Read::Broken("it panicked, see above".to_owned()));
    let took = began.end();
    let kind = match read {
        Read::Broken(broken) => return Some(broken),
        _ if took > LONGEST => return Some(format!("it took {took:?}")),
        _ if memory() > MOST_MEMORY => return Some(format!("this process came to {} KiB", memory())),
        Read::Refused(words) if !files.iter().any(|file| names(&words, file)) => {
            return Some(format!("the error does not name its file: {words}"));
        }
        Read::Refused(words) | Read::Unnamed(words) if words.trim().is_empty() => {
            return Some("it was refused without a word".to_owned());
        }
        Read::Taken => "taken",
        Read::Refused(_) | Read::Unnamed(_) => "refused",
    };
    *kinds.entry(kind.to_owned()).or_default() += 1;
    None
}

/// Whether an error's words name a file, or the folder that it is in.
fn names(words: &str, file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let folder = file.parent().map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    words.contains(&*name) || words.contains(&folder)
}

/// A file, or one in this folder that the class reads.
fn file_of(path: &Path, class: &str, chance: &mut Chance) -> Result<PathBuf> {
    if path.is_file() {
        return Ok(path.to_owned());
    }
    let entries = std::fs::read_dir(path).map_err(|e| Error::file("read", path, &e))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let fits = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        path.is_file()
            && match class {
                "read-configs" => ending == "toml",
                "read-models" if path.parent().is_some_and(|folder| folder.ends_with("gguf")) => {
                    ending == "gguf"
                }
                "read-models" => {
                    path.ends_with("config.json")
                        || ending == "safetensors"
                        || path.ends_with("model.safetensors.index.json")
                }
                "read-tokenizers" => {
                    path.ends_with("tokenizer.json") || path.ends_with("tokenizer_config.json")
                }
                "read-templates" => path.ends_with("tokenizer_config.json") || ending == "jinja",
                "read-logs" => ending == "parquet" || ending == "pt",
                _ => ending != "py",
            }
    };
    files.retain(fits);
    files.sort();
    if files.is_empty() {
        return Err(Error::new(format!("`{}` has no file for class {class}", path.display())));
    }
    Ok(chance.of_these(&files).clone())
}

/// Where a file is put, with all that lies beside it where it comes from, if that is a model's folder.
fn beside(from: &Path, folder: &Path) -> Result<PathBuf> {
    let around = from.parent().unwrap_or(from);
    let name = from.file_name().unwrap_or_default();
    if !around.join("config.json").exists() && !around.join("tokenizer_config.json").exists() {
        return Ok(folder.join(name));
    }
    let folder = folder.join(around.file_name().unwrap_or_default());
    made(&folder)?;
    for entry in std::fs::read_dir(around).map_err(|e| Error::file("read", around, &e))?.flatten() {
        if entry.path().is_file() {
            copy(&entry.path(), &folder.join(entry.file_name()))?;
        }
    }
    Ok(folder.join(name))
}

pub fn told<T, E: Display>(read: std::result::Result<T, E>) -> Read {
    match read {
        Ok(_) => Read::Taken,
        Err(error) => Read::Refused(error.to_string()),
    }
}

fn config(_: &Path, path: &Path, _: &mut Chance) -> Read {
    told(whole_config(path))
}

/// Reads a config of any kind, with all that it means.
pub fn whole_config(path: &Path) -> Result<()> {
    let name = path.display().to_string();
    let tree = allot_config::open(path, &[])?;
    let whole = tree.table()?;
    if whole.contains_key("lessons") {
        return Recipe::of(&tree).map(drop);
    }
    let simulated = whole.contains_key("world") || whole.contains_key("bank");
    let (section, seed) = if simulated {
        let mut config = SimulateConfig::of(&tree)?;
        config.settle()?;
        (config.compare, config.run.seed)
    } else {
        let mut config = TrainConfig::of(&tree)?;
        config.settle()?;
        (config.compare, config.run.seed)
    };
    let Some(section) = section else { return Ok(()) };
    // Of each arm the run of one seed: those of others are the same but for it.
    for arm in section.arms(&whole, &name)? {
        let text = arm.with_seed(seed).to_string();
        if simulated {
            SimulateConfig::parse(&text, &name)?.settle()?;
        } else {
            TrainConfig::parse(&text, &name)?.settle()?;
        }
    }
    Ok(())
}

fn data(_: &Path, path: &Path, _: &mut Chance) -> Read {
    match serde_json::from_value(json!({ "files": path })) {
        Ok(config) => told(Dataset::load(&config, Path::new("."))),
        Err(error) => Read::Broken(error.to_string()),
    }
}

fn model(_: &Path, path: &Path, _: &mut Chance) -> Read {
    let whole = if path.extension().is_some_and(|ending| ending == "gguf") {
        path
    } else {
        path.parent().unwrap_or(path)
    };
    told(Checkpoint::load(whole, &Device::Cpu))
}

fn tokenizer(_: &Path, path: &Path, chance: &mut Chance) -> Read {
    let tokens = match Tokens::read(path.parent().unwrap_or(path)) {
        Err(error) => return Read::Refused(error.to_string()),
        Ok(tokens) => tokens,
    };
    let text = chance.of_these(&["2+3=", "", "ünï\u{0}\u{202e} 12345678901234567890", "<|im_end|>"]);
    let back = tokens.encode(text).and_then(|ids| tokens.decode(&ids));
    let any: Vec<u32> = (0..4).map(|_| chance.next() as u32).collect();
    match back.and(tokens.decode(&any)) {
        Ok(_) => Read::Taken,
        Err(error) => Read::Unnamed(error.to_string()),
    }
}

/// A template as it is in a mangled file, or of Jinja that is changed itself. Twice it renders the same.
fn template(from: &Path, path: &Path, chance: &mut Chance) -> Read {
    let folder = path.parent().unwrap_or(path);
    let own = folder.join("chat_template.jinja");
    let text = std::fs::read_to_string(from).unwrap_or_default();
    let source = match serde_json::from_str::<Value>(&text) {
        Ok(whole) => whole["chat_template"].as_str().unwrap_or_default().to_owned(),
        Err(_) => text,
    };
    if chance.below(3) > 0 && !source.is_empty() {
        if let Err(error) = copy(from, path).and_then(|()| write(&own, jinja::mangled(&source, chance))) {
            return Read::Broken(error.to_string());
        }
    } else if path != own && !from.with_file_name("chat_template.jinja").exists() {
        let _ = std::fs::remove_file(&own);
    }
    let mut messages =
        vec![json!({"role": "system", "content": "Be brief."}), json!({"role": "user", "content": "2+2?"})];
    messages.extend((0..chance.below(3)).map(|_| jinja::message(chance)));
    let more = Map::from_iter([("add_generation_prompt".to_owned(), Value::Bool(true))]);
    let rendered = || ChatTemplate::read(folder).and_then(|template| template.render(&messages, &more));
    match (rendered(), rendered()) {
        (Ok(one), Ok(other)) if one == other => Read::Taken,
        (Err(one), Err(other)) if one.to_string() == other.to_string() => Read::Refused(one.to_string()),
        (one, other) => Read::Broken(format!("it renders as {one:?}, and then as {other:?}")),
    }
}

/// Answers to graders: a verdict, or a sentence that says why there is none.
fn answers(_: &Path, path: &Path, chance: &mut Chance) -> Read {
    graded(path, chance).unwrap_or_else(Read::Broken)
}

fn graded(path: &Path, chance: &mut Chance) -> std::result::Result<Read, String> {
    let text = String::from_utf8_lossy(&std::fs::read(path).map_err(|e| e.to_string())?).into_owned();
    // Of an empty file there is an empty answer.
    let lines: Vec<&str> = if text.trim().is_empty() { vec![""] } else { text.lines().collect() };
    let mut refused = None;
    for _ in 0..20 {
        let (gold, answer) = (chance.of_these(&lines), chance.of_these(&lines));
        // Strings of a case, or the line as it is.
        let piece = |line: &str, chance: &mut Chance| match serde_json::from_str::<Value>(line) {
            Ok(Value::Object(all)) => {
                let texts: Vec<String> = all.values().filter_map(|v| v.as_str().map(str::to_owned)).collect();
                if texts.is_empty() { line.to_owned() } else { chance.of_these(&texts).clone() }
            }
            _ => line.to_owned(),
        };
        let (gold, mut answer) = (piece(gold, chance), piece(answer, chance).into_bytes());
        mangled::mangle_text(&mut answer, chance);
        let grader = *chance.of_these(&Grader::ALL);
        let answer = String::from_utf8_lossy(&answer);
        if let Err(error) = grader.grade(&gold, &answer) {
            refused = Some(error.to_string());
        }
    }
    Ok(refused.map_or(Read::Taken, Read::Unnamed))
}

/// A log becomes a bank, and what a forecast takes from it: the same each time.
fn log(_: &Path, path: &Path, chance: &mut Chance) -> Read {
    let asked = logs::asked(path, chance);
    let read = || {
        let (rows, told) = allot_bank::read(&[path.to_owned()], &asked)?;
        let bank = Bank::of(rows);
        Ok::<_, Error>(format!("{told:?} {:?} {:?}", Profile::of(&bank), Geometry::of(&bank)))
    };
    match (read(), read()) {
        (Ok(one), Ok(other)) if one == other => Read::Taken,
        (Err(one), Err(other)) if one.report() == other.report() => Read::Refused(one.to_string()),
        (one, other) => Read::Broken(format!("it is read as {one:?}, and then as {other:?}")),
    }
}

/// What is read of a record is what was written, as far as the first line that was changed.
fn record(from: &Path, path: &Path, _: &mut Chance) -> Read {
    read_back(from, path).unwrap_or_else(Read::Broken)
}

fn read_back(from: &Path, path: &Path) -> std::result::Result<Read, String> {
    let bytes = |path: &Path| std::fs::read(path).map_err(|e| e.to_string());
    let (whole, mangled) = (bytes(from)?, bytes(path)?);
    let same = whole.split_inclusive(|b| *b == b'\n').zip(mangled.split_inclusive(|b| *b == b'\n'));
    let same = same.take_while(|(a, b)| a == b).count();
    let (reader, head) = match Reader::open(path) {
        Err(error) => return Ok(Read::Refused(error.to_string())),
        Ok(opened) => opened,
    };
    let mut views = match Views::new(&head) {
        Err(error) => return Ok(Read::Unnamed(error.to_string())),
        Ok(views) => views,
    };
    let originals = Reader::open(from).map_err(|e| e.to_string())?.0;
    let mut read = 0;
    let columns =
        whole.split(|b| *b == b'\n').filter(|line| line.starts_with(b"{\"kind\":\"column\"")).count();
    for (i, (line, original)) in
        reader.zip(originals.map(Some).chain(std::iter::repeat_with(|| None))).enumerate()
    {
        let line: Line = match line {
            Err(error) => return Ok(Read::Refused(error.to_string())),
            Ok(line) => line,
        };
        // The head and its columns were read before.
        if i + 1 + columns < same {
            let original = original.ok_or("the original is shorter")?.map_err(|e| e.to_string())?;
            let text = |line: &Line| serde_json::to_string(line).unwrap_or_default();
            if text(&line) != text(&original) {
                return Err(format!("line {} is read as another than it is", i + 2 + columns));
            }
        }
        if let Err(error) = views.take(&line) {
            return Ok(Read::Unnamed(error.to_string()));
        }
        read += 1;
    }
    if read + 1 + columns < same {
        return Err(format!("{read} lines were read, though {same} are whole"));
    }
    Ok(Read::Taken)
}
