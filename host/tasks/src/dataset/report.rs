//! What was read of a data set, and what of it did not become a problem.

use crate::place::Place;

/// How many places a sentence names.
const EXAMPLES: usize = 3;

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Rows read, after those skipped.
    pub rows: usize,
    /// Rows that ask and answer the same as an earlier one.
    pub duplicates: Vec<Repeat>,
    /// Rows that ask the same as an earlier one and answer otherwise. They are kept.
    pub contradictions: Vec<Repeat>,
    /// Rows without a question; left out.
    pub unasked: Vec<Place>,
    /// Rows without an answer; left out.
    pub unanswered: Vec<Place>,
    /// Rows with a prompt that is too long; left out.
    pub over_long: Vec<OverLong>,
}

/// A row that repeats an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Where it stands.
    pub place: Place,
    /// Where the first of its kind stands.
    pub first: Place,
}

/// A row that is too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverLong {
    /// Where it stands.
    pub place: Place,
    /// Its length, in the caller's unit.
    pub length: usize,
}

impl Report {
    /// What is worth telling, a sentence each; nothing where every row became a problem.
    pub fn sentences(&self) -> Vec<String> {
        let rows = self.rows;
        let repeat = |r: &Repeat| (r.place.clone(), format!(" (as {})", told(&r.first, Some(&r.place))));
        let long = |l: &OverLong| (l.place.clone(), format!(" (length {})", l.length));
        let bare = |place: &Place| (place.clone(), String::new());
        let groups = [
            ("identical to an earlier one", named(&self.duplicates, repeat)),
            ("the same question as an earlier one with another answer", named(&self.contradictions, repeat)),
            ("without a question and left out", named(&self.unasked, bare)),
            ("without an answer and left out", named(&self.unanswered, bare)),
            ("too long and left out", named(&self.over_long, long)),
        ];
        let told = groups.into_iter().filter(|(_, (count, _))| *count > 0);
        told.map(|(what, (count, places))| {
            let are = if count == 1 { "is" } else { "are" };
            format!("{count} of {rows} rows {are} {what}: {places}")
        })
        .collect()
    }
}

/// How many there are, and the first of them by name.
fn named<T>(all: &[T], name: impl Fn(&T) -> (Place, String)) -> (usize, String) {
    let mut before: Option<Place> = None;
    let mut places = Vec::new();
    for (place, more) in all.iter().take(EXAMPLES).map(name) {
        places.push(told(&place, before.as_ref()) + &more);
        before = Some(place);
    }
    if all.len() > EXAMPLES {
        places.push(format!("and {} more", all.len() - EXAMPLES));
    }
    (all.len(), places.join(", "))
}

/// A place; without its file, where that is the one named before.
fn told(place: &Place, before: Option<&Place>) -> String {
    match before {
        Some(before) if before.file == place.file => format!("{} {}", place.unit, place.number),
        _ => place.to_string(),
    }
}
