//! Names typed by users: suggestions for unknown ones.

use allot_allocation::shown;

/// Returns the known name nearest to an unknown one, if any is similar enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|k| (strsim::jaro_winkler(name, k), k));
    scored.filter(|(score, _)| *score > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, k)| k)
}

/// Returns a hint with the nearest known name, or with all known names.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if known.clone().into_iter().next().is_none() {
        return "there is none".to_owned();
    }
    match nearest(name, known.clone()) {
        Some(near) => format!("did you mean `{}`?", shown::name(near)),
        None => format!("use one of {}", listed(known)),
    }
}

/// Returns names separated by commas, each in backticks.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<String> = names.into_iter().map(|n| format!("`{}`", shown::name(n))).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
