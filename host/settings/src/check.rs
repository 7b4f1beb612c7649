//! Checks `[reward]` beyond the types of its values, and makes its paths absolute.

use std::fmt::Display;
use std::path::PathBuf;

use allot_base::{Error, Result, absolute, settle_command};

use crate::reward::{
    FUNCTIONS, JudgeConfig, Overlong, RewardConfig, Unreadable, is_name, is_of, no_component, no_functions,
    no_server,
};
use crate::{AnyGrader, ComponentConfig, PythonConfig};

/// The hint where no grader is named.
const NO_GRADER: &str = "set `grader`, or write a [[reward.graders]] section for each part of the reward";
/// The rule for a part's name.
const PART: &str = "use at most 64 letters, digits, `_`, `-` and `.` in a part's name";

impl RewardConfig {
    /// Checks `[reward]`. `longest` is the length limit of answers, in tokens; `name` is for errors.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, and its place.
    pub fn check(&self, name: &str, longest: u32) -> Result<()> {
        let whole = One { config: self, longest, file: format!("`{name}`"), place: "reward" };
        if self.graders.is_empty() {
            whole.stands_alone()?;
            return whole.check();
        }
        let of_one = Self {
            graders: Vec::new(),
            overlong: None,
            unreadable: Unreadable::default(),
            patience: None,
            ..self.clone()
        };
        if of_one != Self::default() {
            let what =
                format!("`{name}` has graders under [[reward.graders]], and settings of one under [reward]");
            return Err(Error::new(what).hint(
                "Move `grader` and its settings under a [[reward.graders]]. Only `overlong`, `unreadable` and `patience` \
                 apply to all graders.",
            ));
        }
        whole.penalty()?;
        for one in &self.graders {
            let part = one.part();
            let place = "reward.graders";
            let file = format!("`{name}` (grader `{part}`)");
            let one = One { config: one, longest, file, place };
            one.is_a_part()?;
            one.check()?;
            if self.graders.iter().filter(|other| other.part() == part).count() > 1 {
                let what = format!("`{name}` has two graders named `{part}`");
                return Err(Error::new(what)
                    .hint("give each a different `name`, which also names its part of the reward"));
            }
        }
        Ok(())
    }

    /// Checks that each of these sources has a grader that decides, and that each grader's sources exist.
    ///
    /// # Errors
    ///
    /// A source without a grader, or a grader for a source without problems.
    pub fn check_sources<'s>(&self, sources: impl Iterator<Item = &'s str> + Clone) -> Result<()> {
        let there = || {
            let mut names: Vec<&str> = sources.clone().collect();
            names.sort_unstable();
            names.dedup();
            format!("use one of the sources {}", allot_base::listed(names.into_iter()))
        };
        if let Some(alone) = sources.clone().find(|source| !self.each().iter().any(|one| one.judges(source)))
        {
            let what = format!("no grader under [[reward.graders]] grades the problems of source `{alone}`");
            return Err(
                Error::new(what).hint("add it to the `sources` of a grader, or remove `sources` from one")
            );
        }
        let undecided = |source: &&str| {
            self.each().iter().filter(|one| one.judges(source)).all(|one| one.decides == Some(false))
        };
        if let Some(source) = sources.clone().find(undecided) {
            let what = format!("no grader says whether answers to problems of source `{source}` are correct");
            return Err(Error::new(what).hint("remove `decides = false` from a grader of this source"));
        }
        for one in self.each() {
            if let Some(missing) =
                one.sources.iter().find(|own| !sources.clone().any(|source| is_of(source, own)))
            {
                let what =
                    format!("grader `{}` has source `{missing}`, but no problem comes from it", one.part());
                return Err(Error::new(what).hint(there()));
            }
        }
        Ok(())
    }

    /// Makes the paths of files absolute, so that the run can be resumed from another folder.
    ///
    /// # Errors
    ///
    /// A path that cannot be made absolute.
    pub fn settle(&mut self) -> Result<()> {
        self.graders.iter_mut().try_for_each(Self::settle)?;
        self.component.as_mut().map_or(Ok(()), ComponentConfig::settle)?;
        let whole = |path: &mut PathBuf| -> Result<()> {
            *path = absolute(path)?;
            Ok(())
        };
        let python = self.python.iter_mut().flat_map(|p| [p.interpreter.as_mut(), p.wheels.as_mut()]);
        python.flatten().try_for_each(whole)?;
        self.functions.as_mut().map(|functions| &mut functions.file).map_or(Ok(()), whole)?;
        let command = self.process.as_mut().and_then(|process| process.command.as_mut());
        command.map_or(Ok(()), |words| settle_command(words))
    }
}

/// The settings of one grader, and their section.
struct One<'c> {
    config: &'c RewardConfig,
    /// The length limit of an answer.
    longest: u32,
    /// The config's name, and the grader's if there are several.
    file: String,
    /// The section.
    place: &'static str,
}

impl One<'_> {
    /// Refuses keys that are valid only for one of several graders.
    fn stands_alone(&self) -> Result<()> {
        let RewardConfig { name, sources, weight, decides, .. } = self.config;
        let given = [
            ("name", name.is_some()),
            ("sources", !sources.is_empty()),
            ("weight", weight.is_some()),
            ("decides", decides.is_some()),
        ];
        let Some((key, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
        let what = format!("{} has `reward.{key}`, which is only for one of several graders", self.file);
        Err(Error::new(what).hint("leave it out, or write the grader under [[reward.graders]]"))
    }

    /// Checks the keys of one of several graders.
    fn is_a_part(&self) -> Result<()> {
        let (file, part) = (&self.file, self.config.part());
        if !self.config.graders.is_empty() {
            let what = format!("{file} has graders of its own");
            return Err(Error::new(what).hint("write each under [[reward.graders]]"));
        }
        if self.config.patience.is_some() {
            let what = format!("{file} has `reward.graders.patience`, which is for all graders together");
            return Err(Error::new(what).hint("Move `patience` under [reward]."));
        }
        if self.config.grader.is_some() && (!is_name(part) || part.contains('.')) {
            let what = format!("{file}: `reward.graders.name` is {part:?}");
            return Err(Error::new(what).hint("use at most 64 letters, digits, `_` and `-`"));
        }
        self.finite("weight", self.config.weight.unwrap_or(1.0))
    }

    fn check(&self) -> Result<()> {
        let (file, place, config) = (&self.file, self.place, self.config);
        let Some(grader) = config.grader else {
            return Err(Error::new(format!("{file}: [{place}] names no grader")).hint(NO_GRADER));
        };
        let python = config.python.as_ref();
        let paths = [
            ("functions.file", config.functions.as_ref().map(|functions| &functions.file)),
            ("python.interpreter", python.and_then(|python| python.interpreter.as_ref())),
            ("python.wheels", python.and_then(|python| python.wheels.as_ref())),
        ];
        if let Some((key, _)) = paths.iter().find(|(_, path)| path.is_some_and(|p| p.as_os_str().is_empty()))
        {
            return Err(Error::new(format!("{file}: `{place}.{key}` is empty; expected a path")));
        }
        self.finite("right", config.right)?;
        self.finite("wrong", config.wrong)?;
        self.finite("correct_from", config.correct_from.unwrap_or(0.0))?;
        self.penalty()?;
        config.weights.iter().try_for_each(|(part, x)| self.finite(&format!("weights.{part}"), *x))?;
        if let Some(part) = config.weights.keys().find(|part| !is_name(part)) {
            return Err(Error::new(format!("{file}: `{place}.weights` has a part {part:?}")).hint(PART));
        }
        let given =
            [("correct_from", config.correct_from.is_some()), ("weights", !config.weights.is_empty())];
        if let Some((key, _)) = given.into_iter().find(|(_, given)| *given && !grader.gives_rewards()) {
            let grader = grader.name();
            let what = format!("{file} has `{place}.{key}`, but grader `{grader}` does not return rewards");
            return Err(Error::new(what)
                .hint("leave it out, or use grader `command`, `functions`, `http` or `component`"));
        }
        self.sections(grader)?;
        config.process.as_ref().map_or(Ok(()), |process| self.process(process))?;
        self.functions(grader)?;
        self.pattern(grader)?;
        self.http(grader)?;
        self.component(grader)?;
        match config.python.as_ref().and_then(PythonConfig::wrong) {
            Some((key, value, rule)) => self.wrong(key, value, rule),
            None => Ok(()),
        }
    }

    /// Refuses the section of another grader.
    fn sections(&self, grader: AnyGrader) -> Result<()> {
        let (file, place, config) = (&self.file, self.place, self.config);
        if config.process.is_some() && !grader.has_processes() {
            let name = grader.name();
            let what =
                format!("{file} has a section [{place}.process], but grader `{name}` does not start any");
            let hint = "leave the section out, or use grader `command`, `functions` or `math-verify`";
            return Err(Error::new(what).hint(hint));
        }
        if config.python.is_some() && !config.sandboxed() {
            let grader = grader.name();
            let what = format!("{file} has a section [{place}.python], but its grader is `{grader}`");
            let hint = "leave the section out, or use grader `python` or `math-verify`";
            return Err(Error::new(what).hint(hint));
        }
        if config.python.is_some() && config.process.is_some() {
            let what = format!("{file} has both sections [{place}.python] and [{place}.process]");
            let hint = format!(
                "keep [{place}.python] to run math-verify in the sandbox, or [{place}.process] for processes"
            );
            return Err(Error::new(what).hint(hint));
        }
        let own = [
            ("functions", config.functions.is_some(), AnyGrader::Functions),
            ("http", config.http.is_some(), AnyGrader::Http),
            ("component", config.component.is_some(), AnyGrader::Component),
            ("pattern", config.pattern.is_some(), AnyGrader::Pattern),
        ];
        match own.into_iter().find(|(_, given, owner)| *given && *owner != grader) {
            Some((key, _, owner)) => {
                let (grader, owner) = (grader.name(), owner.name());
                let what = format!("{file} has a section [{place}.{key}], but its grader is `{grader}`");
                Err(Error::new(what).hint(format!("leave the section out, or use grader `{owner}`")))
            }
            None => Ok(()),
        }
    }

    fn process(&self, process: &JudgeConfig) -> Result<()> {
        if process.command.as_ref().is_some_and(|words| words.first().is_none_or(String::is_empty)) {
            let what = format!("{}: `{}.process.command` is empty", self.file, self.place);
            return Err(Error::new(what).hint("set it to a list of a program and its arguments"));
        }
        if !(1..=1024).contains(&process.processes) {
            return self.wrong("process.processes", process.processes as f64, "expected 1 to 1024");
        }
        if !(process.seconds > 0.0 && process.seconds <= 86_400.0) {
            return self.wrong("process.seconds", process.seconds, "expected more than 0 and at most 86400");
        }
        let start = process.start_seconds();
        if !(start > 0.0 && start <= 604_800.0) {
            let rule = "expected more than 0 and at most 604800";
            return self.wrong("process.start_seconds", start, rule);
        }
        Ok(())
    }

    fn functions(&self, grader: AnyGrader) -> Result<()> {
        let (file, place, config) = (&self.file, self.place, self.config);
        if grader == AnyGrader::Command
            && config.process.as_ref().is_none_or(|process| process.command.is_none())
        {
            let hint =
                format!(r#"write one under [{place}.process], like command = ["python3", "judge.py"]"#);
            return Err(Error::new(format!("{file} has grader `command` but no command")).hint(hint));
        }
        let error = match &config.functions {
            None if grader == AnyGrader::Functions => return Err(no_functions(file, place)),
            None => return Ok(()),
            Some(functions) => {
                let twice = |name: &String| functions.names.iter().filter(|other| *other == name).count() > 1;
                match functions.names.iter().find(|function| !is_name(function) || twice(function)) {
                    Some(function) => format!("{file}: `{place}.functions.names` has {function:?}"),
                    None if functions.names.is_empty() => {
                        format!("{file}: `{place}.functions.names` is empty")
                    }
                    None => return Ok(()),
                }
            }
        };
        Err(Error::new(error).hint(FUNCTIONS))
    }

    fn pattern(&self, grader: AnyGrader) -> Result<()> {
        let (file, place) = (&self.file, self.place);
        let Some(pattern) = &self.config.pattern else {
            if grader != AnyGrader::Pattern {
                return Ok(());
            }
            let what = format!("{file} has grader `pattern` but no section [{place}.pattern]");
            return Err(Error::new(what)
                .hint(r"add this section with a regular expression, like regex = '\\boxed\{'"));
        };
        match pattern.compiled() {
            Ok(_) => Ok(()),
            Err(why) => Err(Error::new(format!("{file}: `{place}.pattern.regex` {why}"))
                .hint("use the syntax of Rust's `regex` crate: no look-around and no backreferences")),
        }
    }

    fn http(&self, grader: AnyGrader) -> Result<()> {
        match &self.config.http {
            None if grader == AnyGrader::Http => Err(no_server(&self.file, self.place)),
            None => Ok(()),
            Some(http) => match http.wrong() {
                Some((key, value, rule)) => self.wrong(&format!("http.{key}"), value, &rule),
                None => Ok(()),
            },
        }
    }

    fn component(&self, grader: AnyGrader) -> Result<()> {
        match &self.config.component {
            None if grader == AnyGrader::Component => Err(no_component(&self.file, self.place)),
            None => Ok(()),
            Some(component) => match component.wrong() {
                Some((key, value, rule)) => self.wrong(key, value, rule),
                None => Ok(()),
            },
        }
    }

    fn penalty(&self) -> Result<()> {
        let Some(Overlong { buffer, penalty }) = self.config.overlong else { return Ok(()) };
        self.finite("overlong.penalty", penalty)?;
        if penalty < 0.0 {
            return self.wrong("overlong.penalty", f64::from(penalty), "expected 0 or more");
        }
        if buffer == 0 || buffer > self.longest {
            return self.wrong("overlong.buffer", f64::from(buffer), "expected 1 to `sampling.max_tokens`");
        }
        Ok(())
    }

    fn finite(&self, key: &str, x: f32) -> Result<()> {
        if x.is_finite() { Ok(()) } else { self.wrong(key, f64::from(x), "expected a finite number") }
    }

    fn wrong(&self, key: &str, value: impl Display, rule: &str) -> Result<()> {
        Err(Error::new(format!("{}: `{}.{key}` is {value}; {rule}", self.file, self.place)))
    }
}
