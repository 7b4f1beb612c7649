//! Commands that write a file of what they read: `allot forecast --page` and `allot grade --out`. Of mangled input they make
//! something or say why not, the same each time; and the file that was there stays, or is replaced by a whole one, even if they
//! are killed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use allot_base::{Error, Result};
use serde_json::Value;

use crate::files::{made, write};
use crate::{Chance, Class, Outcome, Place, logs, mangled, runs};

/// A command that writes a file.
pub struct Outputs {
    name: &'static str,
    /// Makes a case's input in its folder, mangled or not.
    input: fn(&Place<'_>, &mut Chance) -> Result<Input>,
    /// What is wrong with the file that it wrote, and with what it printed.
    check: fn(&Path, &str) -> Option<String>,
    /// How long it takes, in milliseconds.
    takes: u64,
}

/// What a command is given.
struct Input {
    words: Vec<String>,
    /// The file that it writes, in the case's folder.
    out: String,
    /// Whether all of it is as it should be.
    is_whole: bool,
}

/// What a case writes beside it.
const PRINTED: &str = "printed.txt";
const SAID: &str = "said.txt";

/// What was in the file before.
const BEFORE: &str = "as it was before\n";

/// All classes of this kind.
pub fn all() -> Vec<Outputs> {
    vec![
        Outputs { name: "forecast", input: forecast, check: page, takes: 600 },
        Outputs { name: "grade", input: grade, check: verdicts, takes: 40 },
    ]
}

impl Class for Outputs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&mut self, at: &Place<'_>) -> Result<()> {
        logs::make(&at.reference)
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        let Input { words, out, is_whole } = (self.input)(at, chance)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let path = at.folder.join(&out);
        let was_there = path.exists() || chance.below(2) == 0;
        if was_there && !path.exists() {
            write(&path, BEFORE)?;
        }
        let before = std::fs::read(&path).ok();
        let names = names(&at.folder)?;
        let told = format!("allot {}: ", words.join(" "));
        let broken = |what: String| Ok(Outcome::Broken(format!("{told}{what}")));
        if chance.below(3) == 0 {
            let killed = Duration::from_millis(self.takes).mul_f64(chance.share() * 1.5);
            kill(at, &words, killed)?;
            if let Some(what) = self.changed(&path, before.as_deref()) {
                return broken(format!("killed after {killed:?}, {what}"));
            }
            // What a kill leaves beside it is hidden, and is no file of the user's.
            remove_hidden(&at.folder)?;
        }
        let before = std::fs::read(&path).ok();
        let printed = at.folder.join(PRINTED);
        let ended = runs::run_into(at.program, &at.folder, &words, &printed)?;
        write(&at.folder.join(SAID), &ended.said)?;
        if let Some(fault) = ended.fault_of_mangled() {
            return broken(fault);
        }
        if is_whole && ended.code == Some(2) {
            return broken(format!("it is refused, though it is as it should be: {}", ended.said));
        }
        let text = std::fs::read_to_string(&printed).unwrap_or_default();
        let after = std::fs::read(&path).ok();
        if ended.code == Some(2) && after != before {
            return broken("it failed, and its file is not as it was".to_owned());
        }
        if ended.code != Some(2)
            && let Some(what) = (self.check)(&path, &text)
        {
            return broken(what);
        }
        let left: Vec<String> = self::names(&at.folder)?
            .into_iter()
            .filter(|name| !names.contains(name) && ![&out, PRINTED, SAID].contains(&name.as_str()))
            .collect();
        if !left.is_empty() {
            return broken(format!("it left {}", left.join(", ")));
        }
        // The same once more.
        let again = runs::run_into(at.program, &at.folder, &words, &printed)?;
        let same = again.code == ended.code
            && std::fs::read_to_string(&printed).unwrap_or_default() == text
            && std::fs::read(&path).ok() == after;
        if !same {
            return broken("it does not come to the same twice".to_owned());
        }
        Ok(Outcome::Kept(if ended.code == Some(2) { "refused" } else { "taken" }.to_owned()))
    }
}

impl Outputs {
    /// What is wrong with the file after a kill: it is neither as it was nor whole.
    fn changed(&self, path: &Path, before: Option<&[u8]>) -> Option<String> {
        let now = std::fs::read(path).ok();
        if now.as_deref() == before {
            return None;
        }
        // Of what was printed nothing is known.
        let words = (self.check)(path, "")?;
        (words != UNPRINTED).then(|| format!("its file is not as it was: {words}"))
    }
}

/// Said of a file that has more than was printed.
const UNPRINTED: &str = "the verdicts printed are not those of the file";

/// A log of any layout, alone, in a folder of logs, or in that of a comparison; mangled, mostly, or read with options that can't
/// be.
fn forecast(at: &Place<'_>, chance: &mut Chance) -> Result<Input> {
    let dumps = at.root.join("tests/cases/bank");
    let from = match chance.below(4) {
        0 => dumps.join(chance.of_these(&["slime/rollout_0.pt", "completions_00005.parquet"])),
        _ => logs::any(&at.reference, chance)?,
    };
    let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let place = match chance.below(4) {
        0 => format!("log/{name}"),
        1 if name == "bank.parquet" => "log/report/rollouts.parquet".to_owned(),
        _ => name.clone(),
    };
    let is_whole = chance.below(5) == 0;
    let to = at.folder.join(&place);
    made(to.parent().unwrap_or(&at.folder))?;
    let mut bytes = std::fs::read(&from).map_err(|e| Error::file("read", &from, &e))?;
    let wrong_options = !is_whole && chance.below(5) == 0;
    if !is_whole && !wrong_options {
        mangled::mangle(&mut bytes, &from, chance);
    }
    write(&to, bytes)?;
    let given = if place.starts_with("log/") { "log".to_owned() } else { place };
    let mut words = vec!["forecast".to_owned(), given.clone()];
    words.extend(logs::options(&name).iter().map(|word| (*word).to_owned()));
    let mut out = "page.html".to_owned();
    if wrong_options {
        match chance.below(3) {
            0 => out.clone_from(&given),
            _ => words.extend(chance.of_these(&OPTIONS).iter().map(|word| (*word).to_owned())),
        }
    }
    words.extend(["--json".to_owned(), "--page".to_owned(), out.clone()]);
    // Prompts of these logs are all alike; that there is nothing to learn from them is told.
    let is_whole = is_whole && name != "rollout_0.pt" && !name.starts_with("completions");
    Ok(Input { words, out, is_whole })
}

/// Options of a forecast that few would give.
const OPTIONS: [&[&str]; 14] = [
    &["--groups", "0"],
    &["--groups", "4096", "--rollouts", "1024"],
    &["--rollouts", "1"],
    &["--right", "nan"],
    &["--characters-per-token", "0"],
    &["--versions", "9..1"],
    &["--versions", "7..7"],
    &["--column", "reward=no such column"],
    &["--column", "reward=+"],
    &["--where", "\u{202e}=1"],
    &["--set", "pilot-commit.pilot=99999999999999999999"],
    &["--set", "uniform.\u{0301}=1"],
    &["--policy", "./no-such.wasm"],
    &["--prompt-tokens", "4294967295"],
];

/// What is wrong with a page, or with its numbers as JSON.
fn page(path: &Path, printed: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    if !(text.starts_with("<!DOCTYPE html>") && text.trim_end().ends_with("</html>")) {
        return Some(format!("its page of {} bytes is not whole", text.len()));
    }
    let json = printed.is_empty() || serde_json::from_str::<Value>(printed).is_ok();
    (!json).then(|| "what it printed is no JSON".to_owned())
}

/// Configs whose rewards need no other program.
const REWARDS: [&str; 6] = [
    "[reward]\ngrader = \"integer\"\n",
    "[reward]\ngrader = \"hendrycks\"\nright = 1.0\nwrong = -1.0\n",
    "[reward]\ngrader = \"math-verify\"\n",
    "[reward]\ngrader = \"pattern\"\n[reward.pattern]\nregex = '^\\d+$'\n",
    "[sampling]\nmax_tokens = 10\n[reward]\noverlong = { buffer = 4, penalty = 1.0 }\n[[reward.graders]]\n\
     name = \"answer\"\ngrader = \"exact\"\n[[reward.graders]]\nname = \"form\"\ngrader = \"pattern\"\nweight = 0.5\n\
     [reward.graders.pattern]\nregex = '^(a|b*)*$'\n",
    "base = \"quickstart\"\n",
];

/// Answers: as lines of JSON, as verl dumps them, and as tables.
const ANSWERS: [(&str, &str); 4] = [
    (
        "answers.jsonl",
        "{\"question\":\"2+3\",\"answer\":\"so it is 5\\n#### 5\",\"response\":\"I think \\\\boxed{5}\",\"tokens\":8}\n\
         {\"question\":\"2+4\",\"answer\":\"6\",\"response\":\"7\",\"tokens\":8,\"reward\":1.0}\n\
         {\"question\":\"2+8\",\"answer\":10,\"response\":[\"10\"],\"tokens\":12}\n\
         {\"question\":\"x\",\"answer\":\"\\\\frac{1}{2}\",\"response\":\"\\\\boxed{0.5}\",\"tokens\":3}\n",
    ),
    (
        "1.jsonl",
        "{\"input\":\"2+3=\",\"output\":\"5\",\"gts\":\"5\",\"score\":1.0,\"response_length\":1}\n\
         {\"input\":\"2+3=\",\"output\":\"\\\\boxed{6}\",\"gts\":\"5\",\"score\":-1.0,\"response_length\":9}\n",
    ),
    ("answers.csv", "response,gold,reward,tokens\n007,007,1,3\n7,007,1,3\n\"a, \"\"b\"\"\",b,0,11\n"),
    ("answers.tsv", "response\tgold\ttokens\n12\t12\t1\n\t12\t1\n"),
];

/// A config or answers, one of them mangled, mostly.
fn grade(at: &Place<'_>, chance: &mut Chance) -> Result<Input> {
    let (mut config, (name, answers)) =
        (chance.of_these(&REWARDS).as_bytes().to_vec(), *chance.of_these(&ANSWERS));
    let mut answers = answers.as_bytes().to_vec();
    match chance.below(5) {
        0 => {}
        1 | 2 => mangled::mangle(&mut config, Path::new("reward.toml"), chance),
        _ => mangled::mangle(&mut answers, Path::new(name), chance),
    }
    write(&at.folder.join("reward.toml"), config)?;
    write(&at.folder.join(name), answers)?;
    let out = match chance.below(12) {
        0 => name,
        1 => "reward.toml",
        2..=4 => "verdicts.parquet",
        _ => "verdicts.jsonl",
    };
    let mut words: Vec<String> =
        ["grade", "reward.toml", name, "--json", "--out", out].map(str::to_owned).to_vec();
    if chance.below(8) == 0 {
        let more = *chance.of_these(&[
            "answer=response",
            "gold=response",
            "gold=*",
            "tokens=gold",
            "answer=nothing",
        ]);
        words.extend(["--column".to_owned(), more.to_owned()]);
    }
    // Whether a grader takes an answer is tested elsewhere.
    Ok(Input { words, out: out.to_owned(), is_whole: false })
}

/// What is wrong with a file of verdicts, or with those that were printed.
fn verdicts(path: &Path, printed: &str) -> Option<String> {
    if path.extension().is_some_and(|ending| ending == "parquet") {
        let bytes = std::fs::read(path).unwrap_or_default();
        let whole = bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1");
        return (!whole).then(|| "its table is not whole".to_owned());
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| serde_json::from_str::<Value>(line).is_ok_and(|row| row["row"].is_u64());
    if text.is_empty() || !text.ends_with('\n') || !text.lines().all(line) {
        return Some("its lines are not whole".to_owned());
    }
    (text != printed).then(|| UNPRINTED.to_owned())
}

/// Starts the command, and kills it after so long.
fn kill(at: &Place<'_>, words: &[&str], after: Duration) -> Result<()> {
    let mut child = runs::started(Command::new(at.program), &at.folder, words)?;
    std::thread::sleep(after);
    let _ = child.kill();
    runs::ended(child).map(drop)
}

/// Names in a folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    Ok(entries(folder)?
        .iter()
        .map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned())
        .collect())
}

fn remove_hidden(folder: &Path) -> Result<()> {
    for path in entries(folder)? {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            std::fs::remove_file(&path).map_err(|e| Error::file("remove", &path, &e))?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::file("read", folder, &e))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}
