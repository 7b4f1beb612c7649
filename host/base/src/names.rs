//! Names that people type: what to say of one that is unknown.

use allot_allocation::shown;

/// The name nearest to one that is unknown, if any is near.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|k| (strsim::jaro_winkler(name, k), k));
    scored.filter(|(score, _)| *score > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, k)| k)
}

/// A hint that names the nearest known name, or all of them.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if known.clone().into_iter().next().is_none() {
        return "there is none".to_owned();
    }
    match nearest(name, known.clone()) {
        Some(near) => format!("did you mean `{}`?", shown::name(near)),
        None => format!("use one of {}", listed(known)),
    }
}

/// Names in a row, each in backticks.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<String> = names.into_iter().map(|n| format!("`{}`", shown::name(n))).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
