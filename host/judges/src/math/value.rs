//! What a piece of LaTeX means, in the grammar that is certain, and whether two meanings are equal.
//!
//! ```text
//! value    = letter | "\text{" letter "}" | tuple | [ "\$" ] [ "-" ] amount [ unit ]
//! letter   = "A" | "B" | "C" | "D" | "F" | "G" | "H"
//! tuple    = "(" part { "," part } ")"                              of two parts or more
//! part     = [ "-" ] ( digits | fraction | digits "/" digits )
//! amount   = digits | thousands | decimal | fraction | mixed | digits "/" digits | number percent
//! number   = digits | decimal
//! mixed    = digits fraction
//! fraction = "\frac" "{" [ "-" ] digits "}" "{" digits "}" | "\frac" digit digit
//! percent  = "\%" | "%"
//! unit     = "\text{" letters and spaces "}" [ "^2" | "^3" ] | "^\circ" | "^{\circ}"
//! ```
//!
//! `\dfrac`, `\tfrac` and `\cfrac` are `\frac`, `\left` and `\right` are dropped, and so is `\!`; `{,}` is a comma.
//! These are rules of latex2sympy2_extended's `math_normalization.py`. Each form is one reading of its
//! grammar (`PS.g4`): an integer or a fraction is a `Rational`, a decimal a `Float` of 53 bits, a
//! percentage its hundredth, a pair an open interval if it ascends and else a tuple.

/// A number: `over / under`, and how sympy holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar {
    over: i128,
    /// Above 0.
    under: i128,
    held: Held,
}

/// How sympy holds a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Exact,
    Float,
    /// A hundredth of a float, which is rounded once more.
    FloatPercent,
}

/// A piece of LaTeX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Scalar(Scalar),
    Tuple(Vec<Scalar>),
    /// A letter of a choice, in capitals.
    Letter(char),
}

/// The most digits of a number: floats of 53 bits tell all of these apart.
const DIGITS: usize = 15;
/// The most digits in a fraction, whose parts are multiplied.
const FRACTION: usize = 9;
/// Floats are compared after rounding to six digits: further apart than this, they differ after it, too.
const APART: i128 = 500_000;
/// Below this, six digits behind the point of a float of 53 bits are right.
const LARGE: i128 = 1_000_000_000;

impl Scalar {
    /// Returns the number of these digits before and behind a point, if there are few enough.
    pub fn decimal(is_negative: bool, whole: &str, part: &str) -> Option<Self> {
        let digits = format!("{whole}{part}");
        if digits.is_empty() || digits.len() > DIGITS || !is_digits(&digits) {
            return None;
        }
        let over: i128 = digits.parse().ok()?;
        let held = if part.is_empty() { Held::Exact } else { Held::Float };
        let under = 10_i128.pow(part.len() as u32);
        Some(Self { over: if is_negative { -over } else { over }, under, held })
    }

    /// Returns a fraction of digits. One by 0 is not a number.
    pub fn fraction(over: &str, under: &str) -> Option<Self> {
        let number = |text: &str| {
            (is_digits(text) && text.len() <= FRACTION).then(|| text.parse::<i128>().ok()).flatten()
        };
        let (over, under) = (number(over)?, number(under)?);
        (under > 0).then_some(Self { over, under, held: Held::Exact })
    }

    /// Returns a hundredth of the number.
    pub fn percent(self) -> Self {
        let held = if self.held == Held::Exact { Held::Exact } else { Held::FloatPercent };
        Self { under: self.under * 100, held, ..self }
    }

    /// Returns the number with the other sign.
    pub fn negative(self) -> Self {
        Self { over: -self.over, ..self }
    }

    /// Returns whether math-verify takes two numbers for equal. Exact ones are compared as they are. A
    /// float equals what has the same decimals, and differs from what is further away than it rounds.
    fn equals(self, other: Self) -> Option<bool> {
        let difference = (self.over * other.under - other.over * self.under).abs();
        if self.held == Held::Exact && other.held == Held::Exact {
            return Some(difference == 0);
        }
        if difference == 0 {
            let is_rounded = self.held == Held::FloatPercent || other.held == Held::FloatPercent;
            return (!is_rounded).then_some(true);
        }
        let is_small = |one: Self| one.over.abs() / one.under < LARGE;
        let is_apart = difference.checked_mul(APART)? > self.under * other.under;
        (is_apart && is_small(self) && is_small(other)).then_some(false)
    }
}

impl Value {
    /// Returns whether math-verify takes two readings for equal, where that is certain.
    pub fn equals(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Scalar(a), Self::Scalar(b)) => a.equals(*b),
            // Intervals and tuples are compared part by part; an interval and a tuple as two tuples.
            (Self::Tuple(a), Self::Tuple(b)) if a.len() == b.len() => {
                let parts: Option<Vec<bool>> = a.iter().zip(b).map(|(a, b)| a.equals(*b)).collect();
                parts.map(|parts| parts.into_iter().all(|part| part))
            }
            (Self::Letter(a), Self::Letter(b)) => Some(a == b),
            (Self::Letter(_), Self::Tuple(_)) | (Self::Tuple(_), Self::Letter(_)) => None,
            // Tuples of different lengths differ; a number is a set of one, and a letter is none.
            _ => Some(false),
        }
    }
}

/// Returns the meaning of a piece of LaTeX, if it is in the grammar.
pub fn latex(text: &str) -> Option<Value> {
    let text = normal(text)?;
    let text = text.trim_ascii();
    if let Some(letter) = letter(text) {
        return Some(Value::Letter(letter));
    }
    if let Some(parts) = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
        let parts: Option<Vec<Scalar>> = parts.split(',').map(|part| signed(part, exact)).collect();
        return parts.filter(|parts| parts.len() > 1).map(Value::Tuple);
    }
    let text = text.strip_prefix(r"\$").unwrap_or(text);
    signed(without_unit(text)?, amount).map(Value::Scalar)
}

/// Returns the text as math-verify normalizes it, where that is as simple as here.
fn normal(text: &str) -> Option<String> {
    let known = |c: char| c.is_ascii_alphanumeric() || r" -/\{}()%$.,^!".contains(c);
    if !text.chars().all(known) || text.len() > 80 {
        return None;
    }
    let mut text = text.to_owned();
    // Elsewhere it could be in the middle of a command.
    if text.replace(r",\!", ",").contains('!') {
        return None;
    }
    text = text.replace(r",\!", ",");
    for (from, to) in [
        ("{,}", ","),
        (r"\dfrac", r"\frac"),
        (r"\tfrac", r"\frac"),
        (r"\cfrac", r"\frac"),
        (r"\left(", "("),
        (r"\right)", ")"),
        (r"^{\circ}", r"^\circ"),
    ] {
        text = text.replace(from, to);
    }
    Some(text)
}

/// Returns the letter of a choice; `E` and `I` are numbers.
fn letter(text: &str) -> Option<char> {
    let inner = text.strip_prefix(r"\text{").and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let mut chars = inner.chars();
    let first = chars.next()?;
    (chars.next().is_none() && "ABCDFGH".contains(first)).then_some(first)
}

/// Returns a text without the unit at its end, which math-verify drops; none if it may read it.
fn without_unit(text: &str) -> Option<&str> {
    if let Some(number) = text.strip_suffix(r"^\circ") {
        // Commas make a tuple.
        return (number.ends_with(|c: char| c.is_ascii_digit()) && !number.contains(',')).then_some(number);
    }
    let Some((number, unit)) = text.split_once(r"\text{") else { return Some(text) };
    let unit = unit.strip_suffix("^2").or_else(|| unit.strip_suffix("^3")).unwrap_or(unit);
    let unit = unit.strip_suffix('}')?.to_ascii_lowercase();
    let is_plain = unit.bytes().all(|b| b == b' ' || b.is_ascii_lowercase());
    // These words are signs.
    let signs = ["perc", "pct", "inf", "and", "or", "sqrt"];
    let is_unit = is_plain && !unit.trim_ascii().is_empty() && !signs.iter().any(|sign| unit.contains(sign));
    (is_unit && !number.trim_ascii().is_empty()).then_some(number)
}

/// Returns the number that `read` reads behind a sign.
fn signed(text: &str, read: fn(&str) -> Option<Scalar>) -> Option<Scalar> {
    let text = text.trim_ascii();
    match text.strip_prefix('-') {
        // With a space behind the sign, commas make a set.
        Some(rest) if rest.starts_with(' ') && rest.contains(',') => None,
        Some(rest) => read(rest.trim_ascii()).map(Scalar::negative),
        None => read(text),
    }
}

fn amount(text: &str) -> Option<Scalar> {
    let percent = text.strip_suffix('%').map(|text| text.strip_suffix('\\').unwrap_or(text));
    if let Some(number) = percent {
        // At most one space is part of a percentage.
        return decimal(number.strip_suffix(' ').unwrap_or(number)).map(Scalar::percent);
    }
    let mixed = |text: &str| {
        let (whole, fraction) = text.split_once(r"\frac")?;
        let (whole, fraction) = (Scalar::fraction(whole.trim_ascii(), "1")?, frac(fraction)?);
        // With a fraction of 0 or less it is a product.
        let over = whole.over * fraction.under + fraction.over;
        (fraction.over > 0).then_some(Scalar { over, ..fraction })
    };
    exact(text).or_else(|| decimal(text)).or_else(|| thousands(text)).or_else(|| mixed(text))
}

/// Returns an integer or a fraction.
fn exact(text: &str) -> Option<Scalar> {
    if let Some(fraction) = text.strip_prefix(r"\frac") {
        return frac(fraction);
    }
    match text.split_once('/') {
        Some((over, under)) => Scalar::fraction(over.trim_ascii(), under.trim_ascii()),
        None => Scalar::decimal(false, text, ""),
    }
}

/// Returns the fraction of what follows `\frac`.
fn frac(text: &str) -> Option<Scalar> {
    if let [over, under] = text.as_bytes() {
        let digits = [*over, *under].map(|digit| (digit as char).to_string());
        return Scalar::fraction(&digits[0], &digits[1]);
    }
    let (over, under) = text.strip_prefix('{')?.strip_suffix('}')?.split_once("}{")?;
    let (over, under) = (over.trim_ascii(), under.trim_ascii());
    match over.strip_prefix('-') {
        Some(over) => Scalar::fraction(over, under).map(Scalar::negative),
        None => Scalar::fraction(over, under),
    }
}

fn decimal(text: &str) -> Option<Scalar> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    // A point must have digits behind it.
    (text.contains('.') != part.is_empty()).then(|| Scalar::decimal(false, whole, part)).flatten()
}

/// Returns a number whose thousands are set apart by commas; other commas make a set. A leading 0 makes a
/// decimal.
fn thousands(text: &str) -> Option<Scalar> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let mut groups = whole.split(',');
    let first = groups.next()?;
    let is_first = (1..=3).contains(&first.len()) && !first.starts_with('0');
    let is_whole = is_first && groups.all(|group| group.len() == 3 && is_digits(group));
    let is_number = is_whole && text.contains('.') != part.is_empty();
    is_number.then(|| Scalar::decimal(false, &whole.replace(',', ""), part)).flatten()
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Commands in a text that math-verify reads and compares with itself in little time.
const COMMANDS: [&str; 30] = [
    "frac", "dfrac", "tfrac", "sqrt", "pi", "text", "textbf", "mathbf", "left", "right", "cdot", "times",
    "le", "leq", "ge", "geq", "infty", "in", "cup", "theta", "alpha", "beta", "circ", "sin", "cos", "tan",
    "log", "ln", "pm", "neq",
];

/// Returns whether a text that is both the gold answer and the answer is certain to be correct: something is
/// left of it once it is normalized, and no part of it takes long to compute.
pub fn is_harmless(text: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || " +-*/\\{}()[]%$.,:;=<>^_!'|".contains(c);
    // Neither a unit nor a sign of money, all that is there.
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric() || "-(".contains(c)) || {
        let mut first = text.chars();
        first.next() == Some('\\') && first.next().is_some_and(|c| c.is_ascii_alphabetic())
    };
    let factorials = text.replace(r"\!", "").contains('!');
    text.len() <= 120
        && text.chars().all(known)
        && starts
        && !factorials
        && is_shallow(text)
        && has_words(text)
        && has_powers(text)
}

/// Returns whether a text is at most so deep in brackets that it is read in little time.
fn is_shallow(text: &str) -> bool {
    let mut depth = 0_i64;
    text.bytes().all(|byte| {
        depth += i64::from(b"([{".contains(&byte)) - i64::from(b")]}".contains(&byte));
        depth <= 4
    })
}

/// Returns whether all commands of a text are known, and there is something beside them.
fn has_words(text: &str) -> bool {
    let mut parts = text.split('\\');
    let is_alphanumeric = |text: &str| text.contains(|c: char| c.is_ascii_alphanumeric());
    let mut beside = parts.next().is_some_and(is_alphanumeric);
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(part.len());
        let (word, rest) = part.split_at(end);
        let is_space = word.is_empty() && rest.starts_with(['!', ',', ';', '%', '$', '{', '}']);
        if !is_space && !COMMANDS.contains(&word) {
            return false;
        }
        beside |= is_alphanumeric(rest);
    }
    beside
}

/// Returns whether all exponents of a text are short.
fn has_powers(text: &str) -> bool {
    text.split('^').skip(1).all(|rest| match rest.strip_prefix('{') {
        Some(rest) => rest.find('}').is_some_and(|end| end <= 5 && !rest[..end].contains('{')),
        None => rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '\\'),
    })
}
