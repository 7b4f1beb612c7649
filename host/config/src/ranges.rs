//! Ranges of settings, and draws from them.
//!
//! Draws form a Latin hypercube (McKay, Beckman and Conover 1979): of n draws, one falls into each n-th of
//! a range. So few trials cover each range evenly, and list values are used equally often.

use allot_allocation::seed::{self, Stream};
use allot_base::{Error, Result};
use toml::{Table, Value};

/// The possible values of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Range {
    /// One of these values.
    List(Vec<Value>),
    /// Any value between two bounds.
    Span {
        /// The lower bound.
        from: f64,
        /// The upper bound.
        to: f64,
        /// Whether the logarithm is drawn uniformly.
        log: bool,
        /// Whether the value is an integer.
        whole: bool,
    },
}

/// Maximum number of redraws for a setting that was drawn already.
const AGAIN: u32 = 100;

impl Range {
    /// Returns the value at a position in [0, 1).
    fn at(&self, place: f64) -> Value {
        match self {
            Self::List(values) => {
                values[((place * values.len() as f64) as usize).min(values.len() - 1)].clone()
            }
            Self::Span { from, to, log, whole: true } => {
                // Each integer gets an equal part of the range.
                let (low, high) = (from - 0.5, to + 0.5);
                let x = if *log { low * (high / low).powf(place) } else { low + (high - low) * place };
                Value::Integer(x.round().clamp(*from, *to) as i64)
            }
            Self::Span { from, to, log, whole: false } => {
                let x = if *log { from * (to / from).powf(place) } else { from + (to - from) * place };
                Value::Float(short(x).clamp(*from, *to))
            }
        }
    }

    /// Returns the number of values, if it is finite.
    fn len(&self) -> Option<u64> {
        match self {
            Self::List(values) => Some(values.len() as u64),
            Self::Span { from, to, whole: true, .. } => Some((to - from) as u64 + 1),
            Self::Span { .. } => None,
        }
    }

    /// Returns all values, if their number is finite.
    fn values(&self) -> Option<Vec<Value>> {
        match self {
            Self::List(values) => Some(values.clone()),
            Self::Span { from, to, whole: true, .. } => {
                Some((*from as i64..=*to as i64).map(Value::Integer).collect())
            }
            Self::Span { .. } => None,
        }
    }

    /// Returns the smallest and the largest value, if all values are numbers.
    pub fn numbers(&self) -> Option<(f64, f64)> {
        match self {
            Self::List(values) => {
                let all: Option<Vec<f64>> = values.iter().map(number).collect();
                let all = all.filter(|all| all.len() > 1)?;
                Some((
                    all.iter().copied().fold(f64::INFINITY, f64::min),
                    all.into_iter().fold(f64::MIN, f64::max),
                ))
            }
            Self::Span { from, to, .. } => Some((*from, *to)),
        }
    }
}

/// Returns a value as a number, if it is one.
pub fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

/// Returns whether two values are equal. 1 and 1.0 are equal.
pub fn alike(a: &Value, b: &Value) -> bool {
    let number = |v: &Value| v.as_float().or_else(|| v.as_integer().map(|n| n as f64));
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// Rounds to two significant digits: more would be hard to read and make no difference.
fn short(x: f64) -> f64 {
    format!("{x:.1e}").parse().unwrap_or(x)
}

/// Returns the ranges in a section, by key, in order. A subsection is a section of the config. `place`
/// names the section in errors.
pub fn ranges(name: &str, place: &str, section: &Table) -> Result<Vec<(String, Range)>> {
    let mut all = Vec::new();
    flatten(name, place, "", section, &mut all)?;
    Ok(all)
}

/// Keys that cannot be tuned, because the comparison sets them or all arms share them, with reasons.
const TAKEN: [(&str, &str); 5] = [
    ("run.seed", "tuning has its own seeds, `compare.tune.seeds`"),
    ("run.name", "each arm has its own name"),
    ("policy.use", "each policy is an arm in `[[compare.policies]]`"),
    ("budget", "all trials have the same budget"),
    ("evaluation", "all trials are evaluated in the same way"),
];

fn flatten(
    name: &str,
    place: &str,
    path: &str,
    section: &Table,
    all: &mut Vec<(String, Range)>,
) -> Result<()> {
    for (key, value) in section {
        let key = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let wrong = |what: String| Err(Error::new(format!("`{name}`: `{key}` in `{place}` {what}")));
        let under = |taken: &str| key == taken || key.starts_with(&format!("{taken}."));
        if let Some((_, why)) = TAKEN.iter().find(|(taken, _)| under(taken)) {
            return wrong(format!("can't be tuned: {why}"));
        }
        match value {
            Value::Array(values) if values.is_empty() => return wrong("has no value to try".to_owned()),
            Value::Array(values) => {
                let twice = values.iter().enumerate().find(|(i, v)| values[..*i].iter().any(|o| alike(o, v)));
                if let Some((_, value)) = twice {
                    return wrong(format!("has {value} twice"));
                }
                all.push((key, Range::List(values.clone())));
            }
            Value::Table(table) if table.contains_key("from") || table.contains_key("to") => {
                match span(table) {
                    Ok(range) => all.push((key, range)),
                    Err(what) => return wrong(what),
                }
            }
            Value::Table(table) => flatten(name, place, &key, table, all)?,
            _ => {
                return wrong("is not a range; expected a list or { from = …, to = … }".to_owned());
            }
        }
    }
    Ok(())
}

fn span(table: &Table) -> std::result::Result<Range, String> {
    if let Some(key) = table.keys().find(|key| !["from", "to", "log"].contains(&key.as_str())) {
        return Err(format!("has the key `{key}`; expected `from`, `to` and `log`"));
    }
    let end = |key: &str| {
        table
            .get(key)
            .and_then(|v| number(v).filter(|x| x.is_finite()))
            .ok_or(format!("has no number for `{key}`"))
    };
    let (from, to) = (end("from")?, end("to")?);
    let whole = ["from", "to"].iter().all(|key| table.get(*key).is_some_and(Value::is_integer));
    let log = match table.get("log") {
        None => false,
        Some(Value::Boolean(log)) => *log,
        Some(_) => return Err("has a `log` that is neither true nor false".to_owned()),
    };
    if from >= to {
        return Err(format!("goes from {from} to {to}; expected the smaller number first"));
    }
    if log && from <= 0.0 {
        return Err(format!("begins at {from}; a logarithmic range must begin above 0"));
    }
    Ok(Range::Span { from, to, log, whole })
}

/// Returns `count` distinct draws, without the declared setting. If there are fewer, returns all.
pub fn drawn(
    ranges: &[(String, Range)],
    run: u64,
    count: u32,
    declared: &[Option<Value>],
) -> Vec<Vec<Value>> {
    let all: Option<u64> = ranges.iter().try_fold(1_u64, |n, (_, range)| n.checked_mul(range.len()?));
    if all.is_some_and(|all| all <= u64::from(count)) {
        return combinations(ranges).unwrap_or_default();
    }
    let mut columns: Vec<(Vec<u32>, Stream)> = ranges
        .iter()
        .map(|(key, _)| {
            let mut stream = Stream::new(seed::tuning(run, key));
            (stream.order(count), stream)
        })
        .collect();
    let known = |value: &Value, declared: &Option<Value>| declared.as_ref().is_some_and(|d| alike(d, value));
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for i in 0..count as usize {
        let strata = columns
            .iter_mut()
            .map(|(order, stream)| (f64::from(order[i]) + stream.unit()) / f64::from(count));
        let places: Vec<f64> = strata.collect();
        let mut row: Vec<Value> =
            ranges.iter().zip(&places).map(|((_, range), place)| range.at(*place)).collect();
        let mut left = AGAIN;
        while left > 0 && (rows.contains(&row) || row.iter().zip(declared).all(|(value, d)| known(value, d)))
        {
            row = ranges.iter().zip(&mut columns).map(|((_, r), (_, stream))| r.at(stream.unit())).collect();
            left -= 1;
        }
        if left > 0 {
            rows.push(row);
        }
    }
    rows
}

/// Returns all combinations of values. Fails if there are `most` or more.
pub fn product(name: &str, ranges: &[(String, Range)], most: u32) -> Result<Vec<Vec<Value>>> {
    if let Some((key, _)) = ranges.iter().find(|(_, range)| range.len().is_none()) {
        let error =
            Error::new(format!("`{name}`: `{key}` has infinitely many values, and a grid tries them all"));
        return Err(error.hint("list the values to try"));
    }
    let all = ranges.iter().try_fold(1_u64, |n, (_, range)| n.checked_mul(range.len()?));
    if all.is_none_or(|all| all >= u64::from(most)) {
        let error = Error::new(format!("`{name}`: its grid has more than {most} settings for an arm"));
        return Err(
            error.hint("list fewer values, or leave --grid out to try only `compare.tune.trials` of them")
        );
    }
    Ok(combinations(ranges).unwrap_or_default())
}

/// Returns all combinations. The last key's values vary fastest.
fn combinations(ranges: &[(String, Range)]) -> Option<Vec<Vec<Value>>> {
    ranges.iter().try_fold(vec![Vec::new()], |rows, (_, range)| {
        let values = range.values()?;
        let longer = |row: Vec<Value>| {
            values.clone().into_iter().map(move |value| row.iter().cloned().chain([value]).collect())
        };
        Some(rows.into_iter().flat_map(longer).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<(String, Range)>> {
        ranges("test", "here", &toml::from_str(text).expect("the test's own section"))
    }

    #[test]
    fn each_part_of_a_range_is_drawn_once() {
        let ranges = of("a = { from = 1e-4, to = 1e-2, log = true }\nb = [1, 2, 3, 4]").expect("ranges");
        let rows = drawn(&ranges, 3, 8, &[None, None]);
        assert_eq!(rows.len(), 8);
        let mut parts: Vec<i64> = rows
            .iter()
            .map(|row| ((number(&row[0]).expect("a number") / 1e-4).log10() / 2.0 * 8.0).floor() as i64)
            .collect();
        parts.sort_unstable();
        // Rounding to two digits may cross the end of an eighth.
        assert!(parts.iter().zip(0..8).all(|(part, i)| (part - i).abs() <= 1), "{parts:?}");
        for value in 1..=4 {
            assert_eq!(rows.iter().filter(|row| row[1].as_integer() == Some(value)).count(), 2);
        }
    }

    #[test]
    fn what_is_no_range_is_told() {
        for (text, words) in [
            ("a = 3", "`a` in `here` is not a range"),
            ("a = []", "has no value to try"),
            ("a = [1, 1.0]", "has 1.0 twice"),
            ("a = { from = 2, to = 1 }", "goes from 2 to 1"),
            ("a = { from = 0, to = 1, log = true }", "a logarithmic range must begin above 0"),
            ("a = { from = 0, to = 1, step = 1 }", "has the key `step`"),
            ("a = { from = 0 }", "has no number for `to`"),
            ("run.seed = [1, 2]", "tuning has its own seeds"),
            ("budget.rollouts = [1, 2]", "all trials have the same budget"),
        ] {
            let error = of(text).expect_err(text);
            assert!(error.what.contains(words), "{text}: {}", error.what);
        }
    }

    #[test]
    fn a_grid_has_every_combination() {
        let ranges = of("a = [1, 2]\nb = { from = 3, to = 5 }").expect("ranges");
        assert_eq!(product("test", &ranges, 100).expect("a few").len(), 6);
        assert!(product("test", &ranges, 5).is_err());
        assert!(product("test", &of("a = { from = 0.0, to = 1.0 }").expect("a range"), 5).is_err());
    }

    #[test]
    fn whole_numbers_stay_whole_and_within() {
        let range = Range::Span { from: 1.0, to: 64.0, log: true, whole: true };
        let values: Vec<i64> =
            (0..1000).filter_map(|i| range.at(f64::from(i) / 1000.0).as_integer()).collect();
        assert_eq!((values.len(), values[0], values[999]), (1000, 1, 64));
        assert!(values.is_sorted());
    }
}
