//! Report of reading a data set: the rows read, and those that did not become problems.

use crate::place::Place;

/// Maximum number of places in a sentence.
const EXAMPLES: usize = 3;

/// Statistics of reading a data set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Rows read, after those skipped.
    pub rows: usize,
    /// Rows with the question and answer of an earlier one.
    pub duplicates: Vec<Repeat>,
    /// Rows with the question of an earlier one and another answer. They are kept.
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
    /// Its place.
    pub place: Place,
    /// The first row like it.
    pub first: Place,
}

/// A row that is too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverLong {
    /// Its place.
    pub place: Place,
    /// Its length, in the caller's unit.
    pub length: usize,
}

impl Report {
    /// Returns a sentence for each finding; none if every row became a problem.
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

/// Returns the number of places, and text that names the first ones.
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

/// Formats a place, without its file if that is the previous place's.
fn told(place: &Place, before: Option<&Place>) -> String {
    match before {
        Some(before) if before.file == place.file => format!("{} {}", place.unit, place.number),
        _ => place.to_string(),
    }
}
