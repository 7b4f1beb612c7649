//! Formatting of numbers: costs with SI prefixes, accuracies in percent, intervals, p-values.
//!
//! A number that is not finite is shown as a dash.

use serde_json::Value;

use crate::estimate::Estimate;

/// Text for a missing number.
pub const NONE: &str = "–";

/// Formats a cost with three digits: 953, 41.0k, 1.50M.
pub fn cost(value: f64) -> String {
    let Some((scaled, letter)) = scaled(value) else { return NONE.to_owned() };
    let digits = match scaled.abs() {
        _ if letter.is_empty() && scaled.fract() == 0.0 => 0,
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{letter}")
}

/// Formats a cost for an axis, as short as possible: 0, 500, 10k, 1.5M.
pub fn tick(value: f64) -> String {
    let Some((scaled, letter)) = scaled(value) else { return NONE.to_owned() };
    format!("{}{letter}", trimmed(scaled, 2))
}

/// Formats a share in percent with one digit after the point: 71.3 %.
pub fn percent(share: f64) -> String {
    finite(share, |s| format!("{}\u{a0}%", signed(s * 100.0, 1)))
}

/// Formats a share in percent for an axis: 70 %, 72.5 %.
pub fn percent_tick(share: f64) -> String {
    finite(share, |s| format!("{}\u{a0}%", trimmed(s * 100.0, 1)))
}

/// Formats a difference of shares in percentage points, with its sign: +2.1.
pub fn points(difference: f64) -> String {
    finite(difference, |d| {
        let text = signed(d * 100.0, 1);
        if d > 0.0 && text != "0.0" { format!("+{text}") } else { text }
    })
}

/// Formats a factor: 1.42×.
pub fn times(ratio: f64) -> String {
    finite(ratio, |r| format!("{r:.2}×"))
}

/// Formats a factor for an axis, as short as possible: 2×, 0.71×.
pub fn times_tick(ratio: f64) -> String {
    finite(ratio, |r| format!("{}×", trimmed(r, 2)))
}

/// Formats a lower bound, rounded down so that it remains true.
pub fn times_at_least(ratio: f64) -> String {
    times((100.0 * ratio + 1e-9).floor() / 100.0)
}

/// Formats an upper bound, rounded up so that it remains true.
pub fn times_at_most(ratio: f64) -> String {
    times((100.0 * ratio - 1e-9).ceil() / 100.0)
}

/// Compares a cost with another: 2.51× fewer, 1.64× more. `ratio` is the other cost over this one.
pub fn compared(ratio: f64) -> String {
    match ratio {
        r if !r.is_finite() => NONE.to_owned(),
        r if r >= 1.0 => format!("{} fewer", times(r)),
        r => format!("{} more", times(1.0 / r)),
    }
}

/// Returns the ends of the interval of such a ratio, the smaller number first. If one end is more and the
/// other is fewer, each end says so.
pub fn compared_ends(low: f64, high: f64) -> (String, String) {
    let bare = |ratio: f64| finite(ratio, |r| format!("{r:.2}"));
    if low >= 1.0 {
        (bare(low), bare(high))
    } else if high <= 1.0 {
        (bare(1.0 / high), bare(1.0 / low))
    } else {
        (compared(low), compared(high))
    }
}

/// Formats a lower bound on such a ratio: at least 1.40× fewer, or at most 1.19× more.
pub fn compared_at_least(ratio: f64) -> String {
    if ratio >= 1.0 {
        format!("at least {} fewer", times_at_least(ratio))
    } else {
        format!("at most {} more", times_at_most(1.0 / ratio))
    }
}

/// Formats an upper bound on such a ratio: at most 1.78× fewer, or at least 1.20× more.
pub fn compared_at_most(ratio: f64) -> String {
    if ratio >= 1.0 {
        format!("at most {} fewer", times_at_most(ratio))
    } else {
        format!("at least {} more", times_at_least(1.0 / ratio))
    }
}

/// Formats a p-value: 0.012, or < 0.001.
pub fn p_value(p: f64) -> String {
    finite(p, |p| if p < 0.001 { "<\u{a0}0.001".to_owned() } else { format!("{p:.3}") })
}

/// Formats a count with thousands separators: 41,234.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats an interval in brackets, each end by `words`; `None` if there is no interval.
pub fn interval(estimate: &Estimate, words: fn(f64) -> String) -> Option<String> {
    let (low, high) = (estimate.low?, estimate.high?);
    Some(format!("[{}, {}]", words(low), words(high)))
}

/// Returns a share of a count, from 0 to 1; 0 of 0 is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Formats a value as in a config.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "by default".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(n) => match n.as_f64().filter(|x| n.is_f64() && x.abs() < 1e-2 && *x != 0.0) {
            Some(small) => format!("{small:e}"),
            None => n.to_string(),
        },
        other => other.to_string(),
    }
}

fn finite(value: f64, words: impl Fn(f64) -> String) -> String {
    if value.is_finite() { words(value) } else { NONE.to_owned() }
}

/// Formats a number with a true minus sign, and without a sign before zero.
fn signed(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let zero = text.chars().all(|c| matches!(c, '0' | '.'));
    if value < 0.0 && !zero { format!("−{text}") } else { text }
}

/// Formats a number without trailing zeros.
fn trimmed(value: f64, digits: usize) -> String {
    let text = signed(value, digits);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Scales a number below a thousand, and returns its SI prefix.
fn scaled(value: f64) -> Option<(f64, &'static str)> {
    if !value.is_finite() {
        return None;
    }
    let letters = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
    let mut scaled = value;
    let mut letter = 0;
    while scaled.abs() >= 999.5 && letter + 1 < letters.len() {
        scaled /= 1000.0;
        letter += 1;
    }
    Some((scaled, letters[letter]))
}
