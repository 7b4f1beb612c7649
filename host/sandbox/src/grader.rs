//! A loaded grader and its three calls. Scores are checked here: one with a value that is not finite, or
//! with a part that the description does not name, is rejected.

use allot_allocation::{Value, shown};

use crate::call::{Caller, DESCRIPTION};
use crate::cost::Cost;
use crate::description::usable_too;
use crate::fault::{Fault, Misuse};
use crate::inspection::Inspection;
use crate::judged::{Asked, GraderDescription, Judged, Linked, NoVerdict, Score};
use crate::kind;
use crate::restricted_wasi::Other;
use crate::sandbox::{Compiled, cause};
use crate::{Kind, LoadError, reward_v0_1, reward_v0_2};

/// Most bytes that a batch's verdicts may return, and the additional bytes for each answer.
const ANSWER: usize = 1 << 20;
const PER_ANSWER: usize = 64 << 10;
/// The most parts of a reward, and the most characters of a part's name.
const PARTS: usize = 64;

/// A grader that is loaded and described.
pub struct Grader {
    caller: Caller,
    linked: Linked,
    inspection: Inspection,
    description: GraderDescription,
    sha256: String,
    size: u64,
}

impl Grader {
    pub(crate) fn new(compiled: Compiled) -> Result<Self, LoadError> {
        let Compiled { sandbox, component, inspection, sha256, size } = compiled;
        let caller = Caller::new(sandbox, inspection.wasi);
        let version = &inspection.version;
        let contract = format!("{}@{version}", Kind::Grader.package());
        let misfit = |e| LoadError::Misfit { contract: contract.clone(), why: cause(&e) };
        let link = match kind::rank(Kind::Grader, version) {
            Some(0) => reward_v0_1::link,
            _ => reward_v0_2::link,
        };
        let linked = link(&mut caller.linker()?, &component).map_err(misfit)?;
        caller.fits(&contract, &linked)?;
        let described = caller.call(DESCRIPTION, None, |store| Ok(Ok(linked(store)?.describe(store)?)));
        let (description, _) = described.map_err(LoadError::Describe)?;
        usable(&description).map_err(LoadError::Description)?;
        Ok(Self { caller, linked, inspection, description, sha256, size })
    }

    /// Returns the grader's description.
    pub fn description(&self) -> &GraderDescription {
        &self.description
    }

    /// Returns the component's sha256, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns the component's size, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the contract version that the component exports.
    pub fn contract(&self) -> &str {
        &self.inspection.version
    }

    /// Returns whether the component imports WASI. Without WASI it can't read clocks or random bytes.
    pub fn has_wasi(&self) -> bool {
        self.inspection.wasi
    }

    /// Passes the settings to the grader's `begin` and returns the cost.
    pub fn begin(&self, settings: &[(String, Value)]) -> Result<Cost, Fault> {
        let begun = self.caller.call(ANSWER, None, |store| (self.linked)(store)?.begin(store, settings));
        begun.map(|((), cost)| cost)
    }

    /// Grades a batch of answers in a fresh instance and returns a verdict for each, in their order. For a grader that
    /// compares answers, a batch is a group.
    /// `begin` and all answers share the limits of one call.
    pub fn grade(
        &self,
        settings: &[(String, Value)],
        batch: &[Asked<'_>],
    ) -> Result<(Vec<Judged>, Cost), Fault> {
        self.grade_under(None, settings, batch)
    }

    /// Grades the same batch with something perturbed that a grader must not depend on. With
    /// [`Other::Memory`], the instance grades the batch twice and the second verdicts count.
    pub fn grade_otherwise(
        &self,
        other: Other,
        settings: &[(String, Value)],
        batch: &[Asked<'_>],
    ) -> Result<Vec<Judged>, Fault> {
        self.grade_under(Some(other), settings, batch).map(|(verdicts, _)| verdicts)
    }

    fn grade_under(
        &self,
        other: Option<Other>,
        settings: &[(String, Value)],
        batch: &[Asked<'_>],
    ) -> Result<(Vec<Judged>, Cost), Fault> {
        let most = ANSWER + PER_ANSWER * batch.len();
        let (verdicts, cost) = self.caller.call(most, other, |store| {
            let grader = (self.linked)(store)?;
            if let Err(refusal) = grader.begin(store, settings)? {
                return Ok(Err(refusal));
            }
            if other == Some(Other::Memory) {
                grader.grade(store, batch)?;
            }
            let verdicts = grader.grade(store, batch)?;
            if verdicts.len() != batch.len() {
                let (given, asked) = (verdicts.len(), batch.len());
                let what = format!("returned {given} verdicts for {asked} answers");
                return Err(Misuse::new(what, "return a verdict for each question, in their order").into());
            }
            Ok(Ok(verdicts))
        })?;
        Ok((
            verdicts.into_iter().map(|verdict| verdict.and_then(|score| self.checked(score))).collect(),
            cost,
        ))
    }

    /// Returns the score with sorted parts, or an error if it can't be used.
    fn checked(&self, mut score: Score) -> Judged {
        score.parts.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.wrong(&score).map_or(Ok(score), |why| Err(NoVerdict::Unusable(why)))
    }

    fn wrong(&self, score: &Score) -> Option<String> {
        if let Some(reward) = score.reward.filter(|reward| !reward.is_finite()) {
            return Some(format!("gave a reward of {reward}"));
        }
        if score.parts.is_empty() {
            return None;
        }
        if let Some((name, value)) = score.parts.iter().find(|(_, value)| !value.is_finite()) {
            return Some(format!("gave its part `{}` as {value}", shown::name(name)));
        }
        let described = &self.description.parts;
        if let Some((name, _)) = score.parts.iter().find(|(name, _)| !described.contains(name)) {
            return Some(format!("gave a part `{}`, which is not in its description", shown::name(name)));
        }
        let given = |name: &String| score.parts.iter().filter(|(part, _)| part == name).count();
        match described.iter().map(|name| (name, given(name))).find(|(_, given)| *given != 1)? {
            (name, 0) => Some(format!("gave no part `{name}`")),
            (name, _) => Some(format!("gave the part `{name}` twice")),
        }
    }
}

impl std::fmt::Debug for Grader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let GraderDescription { name, version, .. } = &self.description;
        write!(f, "Grader({name} {version}, sha256 {})", self.sha256)
    }
}

/// Checks that configs, terminals and tables can use a description. Returns the first problem.
fn usable(d: &GraderDescription) -> Result<(), String> {
    usable_too(&d.name, [&d.version, &d.summary], &d.settings, &[], &[])?;
    if d.parts.len() > PARTS {
        return Err(format!("it has {} parts; the limit is {PARTS}", d.parts.len()));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let fine = |name: &&String| (1..=PARTS).contains(&name.len()) && name.chars().all(plain);
    if let Some(name) = d.parts.iter().find(|name| !fine(name)) {
        let rule = "1 to 64 letters, digits, `_`, `-` and `.`";
        return Err(format!("it has the part `{}`; expected {rule}", shown::name(name)));
    }
    let mut seen = std::collections::HashSet::new();
    match d.parts.iter().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(format!("it has the part `{twice}` twice")),
        None => Ok(()),
    }
}
