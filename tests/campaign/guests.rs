//! Policies and graders that are mangled, generated, and made by hand to do wrong, in this process. Whatever they are, they are
//! refused in a sentence or stay within what a call may use; and what they plan stays within the budget.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use allot_allocation::{Run, Terms};
use allot_authoring::{component, fixtures};
use allot_base::{Error, Result};
use allot_sandbox::{Asked, Caps, Cost, Fault, Kind, LoadError, Sandbox};

use crate::by_hand::{FRAMES, Frame, body};
use crate::files::{made, write};
use crate::{Chance, Class, Outcome, Place, mangled, plans};

/// What a call may use: so that instructions are what it runs out of, or time.
const CAPS: [Caps; 2] = [
    Caps { fuel: 5_000_000, time: Duration::from_secs(5), memory: 8 << 20 },
    Caps { fuel: 1 << 50, time: Duration::from_millis(50), memory: 8 << 20 },
];

/// Beyond its time, on a machine where something else runs.
const SLACK: Duration = Duration::from_secs(20);

/// Decisions that a guest is asked for at most.
const DECISIONS: u32 = 16;

#[derive(Default)]
pub struct Guests {
    sandboxes: Vec<Limited>,
    frames: Vec<(Frame, String)>,
    /// The tool that generates modules.
    smith: PathBuf,
}

/// A sandbox, and what a call in it may use.
struct Limited {
    sandbox: Sandbox,
    caps: Caps,
}

impl Class for Guests {
    fn name(&self) -> &'static str {
        "guests"
    }

    fn prepare(&mut self, at: &Place<'_>) -> Result<()> {
        for caps in CAPS {
            let sandbox = Sandbox::new(caps, None).map_err(|e| Error::new(e.to_string()))?;
            self.sandboxes.push(Limited { sandbox, caps });
        }
        for frame in FRAMES {
            let path = at.root.join(frame.file);
            let text = std::fs::read_to_string(&path).map_err(|e| Error::file("read", &path, &e))?;
            self.frames.push((frame, text));
        }
        let target = at.reference.join("smith");
        let manifest = at.root.join("tests/campaign/smith/Cargo.toml");
        let built = Command::new("cargo")
            .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
            .arg(&manifest)
            .arg("--target-dir")
            .arg(&target)
            .status();
        if !built.is_ok_and(|status| status.success()) {
            return Err(Error::new(format!("`{}` was not built", manifest.display())));
        }
        self.smith = target.join("release/allot-smith");
        // Of the frames as they are now.
        for (frame, text) in &self.frames {
            let text = text.replace(";; DECIDE", "unreachable");
            let module = wat::parse_str(&text).map_err(|e| Error::new(format!("{}: {e}", frame.file)))?;
            write(&shape(at, frame), module)?;
        }
        Ok(())
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        let limited = &self.sandboxes[usize::from(chance.below(4) == 0)];
        let (from, kind, bytes) = match chance.below(3) {
            0 => {
                let folder = *chance.of_these(&["policies/prebuilt", "tests/cases/contract-0.1"]);
                let path = mangled::one_of(&at.root.join(folder), chance)?;
                let mut bytes = std::fs::read(&path).map_err(|e| Error::file("read", &path, &e))?;
                if chance.below(2) == 0 {
                    // A bit: what is whole after it does something else.
                    let at = chance.below(bytes.len());
                    bytes[at] ^= 1 << chance.below(8);
                } else {
                    for _ in 0..*chance.of_these(&[1, 1, 1, 2, 4]) {
                        mangled::mangle_bytes(&mut bytes, chance);
                    }
                }
                ("mangled", Kind::Policy, Ok(bytes))
            }
            1 => {
                let (frame, text) = chance.of_these(&self.frames);
                let text = text.replace(frame.place, &body(frame, chance));
                write(&at.folder.join("guest.wat"), &text)?;
                ("by hand", frame.kind, component::of_module(text.as_bytes(), "guest"))
            }
            _ => {
                let (frame, _) = chance.of_these(&self.frames);
                let Some(module) = self.generated(at, frame, chance)? else {
                    return Ok(Outcome::Kept("generated: none".to_owned()));
                };
                ("generated", frame.kind, component::of_module(&module, "guest"))
            }
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(_) if from == "generated" => return Ok(Outcome::Kept("generated: no component".to_owned())),
            // These are modules that every tool takes.
            Err(why) => return Ok(Outcome::Broken(format!("a guest by hand: {why}"))),
        };
        write(&at.folder.join("guest.wasm"), &bytes)?;
        let since = Instant::now();
        let asked = std::panic::AssertUnwindSafe(|| match kind {
            Kind::Policy => policy(limited, &bytes, chance),
            Kind::Grader => grader(limited, &bytes, chance),
        });
        let ended =
            std::panic::catch_unwind(asked).unwrap_or_else(|_| Err("it panicked, see above".to_owned()));
        let kept = ended.and_then(|how| {
            let most = limited.caps.time * DECISIONS + SLACK;
            if since.elapsed() > most {
                return Err(format!("it took {:?}, and may take {most:?}", since.elapsed()));
            }
            Ok(Outcome::Kept(format!("{from}: {how}")))
        });
        Ok(kept.unwrap_or_else(Outcome::Broken))
    }
}

impl Guests {
    /// A random module with a frame's exports; none, now and then.
    fn generated(&self, at: &Place<'_>, frame: &Frame, chance: &mut Chance) -> Result<Option<Vec<u8>>> {
        let name = frame.file.replace('/', "-");
        let folder = at.reference.join(&name);
        let n = chance.below(1 << 20) as u64;
        let file = folder.join(format!("{n}.wasm"));
        made(&folder)?;
        let shape = shape(at, frame);
        let done = Command::new(&self.smith)
            .args([&shape, &folder])
            .args(["1".to_owned(), n.to_string(), "1".to_owned()])
            .output()
            .map_err(|e| Error::new(format!("`{}` cannot be started: {e}", self.smith.display())))?;
        if !done.status.success() {
            return Err(Error::new(String::from_utf8_lossy(&done.stderr).into_owned()));
        }
        let module = std::fs::read(&file).ok();
        let _ = std::fs::remove_file(&file);
        Ok(module)
    }
}

/// Where the module is whose exports are generated.
fn shape(at: &Place<'_>, frame: &Frame) -> PathBuf {
    at.reference.join(format!("{}.shape.wasm", frame.file.replace('/', "-")))
}

/// How a policy ends: refused, stopped, or with plans that were taken. An error is a promise that was broken.
fn policy(limited: &Limited, bytes: &[u8], chance: &mut Chance) -> std::result::Result<String, String> {
    let Limited { sandbox, caps } = limited;
    let policy = match sandbox.load(bytes, None) {
        Ok(policy) => policy,
        Err(error) => return refused(&error),
    };
    let (mut run, flops) = plans::fresh(chance);
    let described = policy.description();
    let settings = described.settings.iter().map(|s| (s.name.clone(), s.default.clone())).collect();
    let columns = fixtures::columns(&described.columns, run.of.run.prompts);
    let terms = Terms { columns, ..run.of.run.terms.clone().unwrap_or_default() };
    run.of.run = policy.shown(Run { settings, ..run.of.run }, terms);
    match policy.begin(&run.of.run) {
        Err(fault) => return stopped(&fault),
        Ok((state, cost)) => {
            within(&cost, caps)?;
            run.state.policy = state;
        }
    }
    let (mut asked, mut end) = (0, None);
    let taken = plans::driven(run, flops, chance, &mut |run, view, told, _| {
        asked += 1;
        if told.is_some() || asked > DECISIONS {
            end = told.map(|_| "broke a rule".to_owned());
            return Ok(None);
        }
        let since = Instant::now();
        let decided = policy.decide(&run.of.run, &run.state.policy, view);
        if since.elapsed() > caps.time + SLACK {
            return Err(format!("a call of at most {:?} took {:?}", caps.time, since.elapsed()));
        }
        match decided {
            Err(fault) => {
                end = Some(stopped(&fault)?);
                Ok(None)
            }
            Ok((plan, cost)) => within(&cost, caps).map(|()| Some(plan)),
        }
    })?;
    let plans = taken.contains_key("taken");
    Ok(end.unwrap_or_else(
        || if plans { "planned to its end".to_owned() } else { "nothing to plan".to_owned() },
    ))
}

/// How a grader ends.
fn grader(limited: &Limited, bytes: &[u8], chance: &mut Chance) -> std::result::Result<String, String> {
    let Limited { sandbox, caps } = limited;
    let grader = match sandbox.load_grader(bytes, None) {
        Ok(grader) => grader,
        Err(error) => return refused(&error),
    };
    let settings: Vec<_> =
        grader.description().settings.iter().map(|s| (s.name.clone(), s.default.clone())).collect();
    match grader.begin(&settings) {
        Err(fault) => return stopped(&fault),
        Ok(cost) => within(&cost, caps)?,
    }
    let gold = ["4".to_owned()];
    let answers: [&str; 4] = ["4", "", "\u{202e}4\0", "5"];
    let batch: Vec<_> = (0..=chance.below(8))
        .map(|_| Asked {
            prompt: "2+2",
            source: "sums",
            gold: &gold,
            answer: chance.of_these::<&str>(&answers),
        })
        .collect();
    let since = Instant::now();
    let graded = grader.grade(&settings, &batch);
    if since.elapsed() > caps.time + SLACK {
        return Err(format!("a call of at most {:?} took {:?}", caps.time, since.elapsed()));
    }
    let (verdicts, cost) = match graded {
        Err(fault) => return stopped(&fault),
        Ok(graded) => graded,
    };
    within(&cost, caps)?;
    if verdicts.len() != batch.len() {
        return Err(format!("{} verdicts for {} answers", verdicts.len(), batch.len()));
    }
    for score in verdicts.iter().flatten() {
        let numbers = score.reward.into_iter().chain(score.parts.iter().map(|(_, number)| *number));
        if let Some(number) = numbers.into_iter().find(|number| !number.is_finite()) {
            return Err(format!("a reward of {number}"));
        }
    }
    Ok(if verdicts.iter().any(std::result::Result::is_err) { "no verdict" } else { "judged" }.to_owned())
}

/// What a call took is not more than it may.
fn within(cost: &Cost, caps: &Caps) -> std::result::Result<(), String> {
    if cost.fuel > caps.fuel || cost.memory > caps.memory {
        return Err(format!("a call took {} instructions and {} bytes", cost.fuel, cost.memory));
    }
    Ok(())
}

/// A component that is not taken.
fn refused(error: &LoadError) -> std::result::Result<String, String> {
    match error {
        LoadError::Engine(why) => Err(format!("the engine failed: {why}")),
        LoadError::Describe(fault) => stopped(fault),
        _ if error.to_string().trim().is_empty() => Err("it was refused without a word".to_owned()),
        _ => Ok("refused".to_owned()),
    }
}

/// A call that did not come to an answer: what stopped it.
fn stopped(fault: &Fault) -> std::result::Result<String, String> {
    let words = fault.to_string();
    if words.trim().is_empty() || words.lines().any(|line| line.chars().any(char::is_control)) {
        return Err(format!("what stopped it is no sentence: {words:?}"));
    }
    Ok(match fault {
        Fault::Engine(why) => return Err(format!("the engine failed: {why}")),
        Fault::OutOfFuel(_) => "out of fuel",
        Fault::OutOfTime { .. } => "out of time",
        Fault::OutOfMemory { .. } => "out of memory",
        Fault::TooMuch(_) | Fault::StateTooLarge { .. } => "too much at once",
        Fault::Trapped { .. } => "trapped",
        Fault::Lacking(_) | Fault::WithoutColumn(_) => "lacks what it needs",
        Fault::Misused(_) => "misused what it has",
        Fault::Refused(_) => "gave up",
    }
    .to_owned())
}
