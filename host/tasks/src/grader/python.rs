//! Numbers as Python reads them, because the graders that were ported use its `float()` and `int()`.
//! Nothing here knows LaTeX or graders.

/// The ported code raises an exception here. The caller decides on the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raised;

/// Returns `float(text)`, or `None` where it raises.
pub(super) fn float(text: &str) -> Option<f64> {
    // Without underscores, Rust's grammar of floats is Python's.
    plain(text)?.parse().ok()
}

/// Returns `str(int(text))`, or `None` where it raises. Digits remain text, so that no number is too large,
/// up to Python's limit of 4,300 digits.
pub(super) fn int(text: &str) -> Option<String> {
    let text = plain(text)?;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(&text)),
    };
    if digits.is_empty() || digits.len() > 4300 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    Some(if digits.is_empty() { "0".to_owned() } else { format!("{sign}{digits}") })
}

/// Whether `x` is within 1e-7 of an integer.
pub(super) fn whole(x: f64) -> bool {
    x.is_finite() && (x - x.round()).abs() <= 1e-7
}

/// Returns `str(int(x))` of a finite float, with all digits.
pub(super) fn digits(x: f64) -> String {
    // Adding zero turns -0 into 0.
    format!("{:.0}", x.trunc() + 0.0)
}

/// Removes outer white space and the underscores that Python allows between digits, and converts fullwidth
/// digits. `None` if an underscore is elsewhere.
fn plain(text: &str) -> Option<String> {
    let text: Vec<char> = text.trim().chars().map(narrow).collect();
    let digit = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(char::is_ascii_digit);
    let mut out = String::with_capacity(text.len());
    for (at, &c) in text.iter().enumerate() {
        if c != '_' {
            out.push(c);
        } else if !digit(at.checked_sub(1)) || !digit(Some(at + 1)) {
            return None;
        }
    }
    Some(out)
}

fn narrow(c: char) -> char {
    match c {
        '０'..='９' => char::from(b'0' + (c as u32 - '０' as u32) as u8),
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_read_as_python_reads_them() {
        for (text, value) in
            [(" 1_000.5 ", 1000.5), ("+.5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("１２", 12.0)]
        {
            assert_eq!(float(text), Some(value), "{text}");
        }
        assert_eq!(float("-Infinity"), Some(f64::NEG_INFINITY));
        assert!(float("nan").is_some_and(f64::is_nan));
        for text in ["", ".", "1,000", "_1", "1_", "1__0", "1_.5", "0x10", "1e", "1 2"] {
            assert_eq!(float(text), None, "{text}");
        }
    }

    #[test]
    fn integers_are_read_as_python_reads_them() {
        for (text, value) in [("007", "7"), ("-0", "0"), ("+5 ", "5"), ("1_0", "10"), ("-12", "-12")] {
            assert_eq!(int(text).as_deref(), Some(value), "{text}");
        }
        for text in ["", "-", "1.0", "--1", "+-1", &"1".repeat(4301)] {
            assert_eq!(int(text), None, "{text}");
        }
    }

    #[test]
    fn whole_numbers_print_in_full() {
        assert_eq!(digits(-0.0), "0");
        assert_eq!(digits(1e23), "99999999999999991611392");
        assert_eq!(digits(2.999_999_99), "2");
        assert!(whole(2.999_999_99) && !whole(2.9) && !whole(f64::INFINITY) && !whole(f64::NAN));
    }
}
