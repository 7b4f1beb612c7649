//! Checks of a component's description.

use allot_allocation::{Value, shown};
use allot_component::{Description, Setting};

/// Checks that a config can use the description and a terminal can show it. Returns the first problem.
pub(crate) fn usable(d: &Description) -> Result<(), String> {
    usable_too(&d.name, [&d.version, &d.summary], &d.settings, &d.signals, &d.columns)
}

/// Does the same for the description of any component.
pub(crate) fn usable_too(
    name: &String,
    [version, summary]: [&String; 2],
    settings: &[Setting],
    signals: &[String],
    columns: &[String],
) -> Result<(), String> {
    const RULE: &str = "1 to 64 lower-case letters, digits and dashes, a letter first";
    let short = |name: &str| {
        name.len() <= 64
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    let plain = |text: &str| text.len() <= 1024 && !text.chars().any(shown::steers);
    let (count, most) = (settings.len().max(signals.len()).max(columns.len()), 256);
    if count > most {
        return Err(format!("it has {count} settings, signals or columns; the limit is {most}"));
    }
    let names = settings.iter().map(|s| &s.name).chain(signals).chain(columns).chain([name]);
    if let Some(name) = names.clone().find(|name| !short(name)) {
        return Err(format!("it has the name `{}`; expected {RULE}", shown::name(name)));
    }
    let summaries = settings.iter().map(|s| &s.summary).chain([summary, version]);
    if let Some(text) = summaries.clone().find(|text| !plain(text)) {
        return Err(format!(
            "it has the text `{}`; expected one line of at most 1024 bytes",
            shown::name(text)
        ));
    }
    let mut seen = std::collections::HashSet::new();
    if let Some(twice) = settings.iter().map(|s| &s.name).find(|name| !seen.insert(*name)) {
        return Err(format!("it has the setting `{twice}` twice"));
    }
    let mut seen = std::collections::HashSet::new();
    if let Some(twice) = columns.iter().find(|name| !seen.insert(*name)) {
        return Err(format!("it has the column `{twice}` twice"));
    }
    let text = |s: &&Setting| matches!(&s.default, Value::Text(text) if !plain(text));
    if let Some(setting) = settings.iter().find(text) {
        let name = &setting.name;
        return Err(format!("the default of its setting `{name}` is not one line of at most 1024 bytes"));
    }
    match settings.iter().find(|s| matches!(s.default, Value::Number(n) if !n.is_finite())) {
        Some(setting) => Err(format!("the default of its setting `{}` is not finite", setting.name)),
        None => Ok(()),
    }
}
