//! Countdown: an expression that makes the target from the numbers, each used once, as in TinyZero's
//! `verl/utils/reward_score/countdown.py`. It is computed in exact fractions instead of Python, so it knows
//! only `+ - * /` and round brackets: no `//`, `**` or decimal points.
//!
//! Upstream looks for `<answer>` only in the last line, and gives 0.1 for a wrong answer there. Here the
//! last `<answer>` counts anywhere, and an answer is right or wrong.

use serde::Deserialize;

/// The given numbers and the target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Puzzle {
    target: i64,
    numbers: Vec<u32>,
}

impl Puzzle {
    /// Parses `{"target": 42, "numbers": [1, 2, 3]}`.
    pub(super) fn read(gold: &str) -> Option<Self> {
        serde_json::from_str(gold).ok()
    }

    /// Whether `expression` uses each number once and makes the target.
    pub(super) fn is_solved_by(&self, expression: &str) -> Result<bool, TooLarge> {
        let Some(tokens) = tokens(expression) else { return Ok(false) };
        let number = |token: &Token| match token {
            Token::Number(number) => Some(*number),
            _ => None,
        };
        let mut used: Vec<u32> = tokens.iter().filter_map(number).collect();
        let mut given = self.numbers.clone();
        used.sort_unstable();
        given.sort_unstable();
        if used != given {
            return Ok(false);
        }
        match value(&tokens) {
            Ok(value) => Ok(value == Fraction::from(self.target)),
            Err(Fault::TooLarge) => Err(TooLarge),
            Err(Fault::Malformed) => Ok(false),
        }
    }
}

/// Returns the answer in a text: the content of its last `<answer>…</answer>` or, without any `<answer>`,
/// its last line that is not empty. An `<answer>` that is not closed was cut off, and has no answer.
pub(super) fn expression(text: &str) -> Option<&str> {
    let given = match text.rsplit_once("<answer>") {
        Some((_, last)) => last.split_once("</answer>").map(|(inside, _)| inside),
        None => text.lines().rfind(|line| !line.trim().is_empty()),
    };
    given.map(str::trim)
}

/// A value does not fit 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Malformed,
    TooLarge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Number(u32),
    Operator(Operator),
    Open,
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// A minus sign before a value.
    Negate,
}

/// Splits an expression into tokens. `None` if it contains any other text, or a number that starts with a
/// 0, which Python refuses, too.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        // A sign precedes a value; an operator follows one.
        let after_value = matches!(tokens.last(), Some(Token::Number(_) | Token::Close));
        let mut len = first.len_utf8();
        let token = match first {
            '0'..='9' => {
                len = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                let digits = &rest[..len];
                if len > 1 && first == '0' {
                    return None;
                }
                Some(Token::Number(digits.parse().ok()?))
            }
            '+' if !after_value => None,
            '-' if !after_value => Some(Token::Operator(Operator::Negate)),
            '+' => Some(Token::Operator(Operator::Add)),
            '-' => Some(Token::Operator(Operator::Subtract)),
            '*' => Some(Token::Operator(Operator::Multiply)),
            '/' => Some(Token::Operator(Operator::Divide)),
            '(' => Some(Token::Open),
            ')' => Some(Token::Close),
            _ => return None,
        };
        tokens.extend(token);
        rest = rest[len..].trim_start();
    }
    Some(tokens)
}

/// Computes an expression with Dijkstra's two stacks, so that deep brackets need no recursion.
fn value(tokens: &[Token]) -> Result<Fraction, Fault> {
    let mut values = Vec::new();
    // Operators that wait for their right side; `None` is an open bracket.
    let mut waiting: Vec<Option<Operator>> = Vec::new();
    let mut after_value = false;
    for token in tokens {
        let expects_value =
            matches!(token, Token::Number(_) | Token::Open | Token::Operator(Operator::Negate));
        if expects_value == after_value {
            return Err(Fault::Malformed);
        }
        match *token {
            Token::Number(number) => values.push(Fraction::from(i64::from(number))),
            Token::Open => waiting.push(None),
            Token::Close => loop {
                match waiting.pop().ok_or(Fault::Malformed)? {
                    None => break,
                    Some(operator) => apply(operator, &mut values)?,
                }
            },
            Token::Operator(operator) => {
                while let Some(Some(before)) = waiting.last().copied()
                    && operator != Operator::Negate
                    && rank(before) >= rank(operator)
                {
                    waiting.pop();
                    apply(before, &mut values)?;
                }
                waiting.push(Some(operator));
            }
        }
        after_value = matches!(token, Token::Number(_) | Token::Close);
    }
    if !after_value {
        return Err(Fault::Malformed);
    }
    while let Some(operator) = waiting.pop() {
        apply(operator.ok_or(Fault::Malformed)?, &mut values)?;
    }
    values.pop().ok_or(Fault::Malformed)
}

/// Returns the precedence of an operator; a higher one binds tighter.
fn rank(operator: Operator) -> u8 {
    match operator {
        Operator::Add | Operator::Subtract => 0,
        Operator::Multiply | Operator::Divide => 1,
        Operator::Negate => 2,
    }
}

fn apply(operator: Operator, values: &mut Vec<Fraction>) -> Result<(), Fault> {
    let right = values.pop().ok_or(Fault::Malformed)?;
    if operator == Operator::Negate {
        values.push(Fraction { top: right.top.checked_neg().ok_or(Fault::TooLarge)?, ..right });
        return Ok(());
    }
    let left = values.pop().ok_or(Fault::Malformed)?;
    let (a, b, c, d) = (left.top, left.bottom, right.top, right.bottom);
    let (top, bottom) = match operator {
        Operator::Add => (product(a, d)?.checked_add(product(c, b)?), product(b, d)?),
        Operator::Subtract => (product(a, d)?.checked_sub(product(c, b)?), product(b, d)?),
        Operator::Multiply => (Some(product(a, c)?), product(b, d)?),
        // Python fails at a division by zero, and upstream grades the answer wrong.
        Operator::Divide if c == 0 => return Err(Fault::Malformed),
        Operator::Divide | Operator::Negate => (Some(product(a, d)?), product(b, c)?),
    };
    values.push(Fraction::reduced(top.ok_or(Fault::TooLarge)?, bottom)?);
    Ok(())
}

fn product(a: i128, b: i128) -> Result<i128, Fault> {
    a.checked_mul(b).ok_or(Fault::TooLarge)
}

/// A fraction in lowest terms, with a positive denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fraction {
    top: i128,
    bottom: i128,
}

impl From<i64> for Fraction {
    fn from(number: i64) -> Self {
        Self { top: i128::from(number), bottom: 1 }
    }
}

impl Fraction {
    fn reduced(top: i128, bottom: i128) -> Result<Self, Fault> {
        let (mut a, mut b) = (top.unsigned_abs(), bottom.unsigned_abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let divisor = i128::try_from(a).map_err(|_| Fault::TooLarge)?;
        let divisor = if bottom < 0 { -divisor } else { divisor };
        Ok(Self { top: top / divisor, bottom: bottom / divisor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solved(target: i64, numbers: &[u32], expression: &str) -> Result<bool, TooLarge> {
        Puzzle { target, numbers: numbers.to_vec() }.is_solved_by(expression)
    }

    #[test]
    fn expressions_are_computed_exactly() {
        for (target, numbers, expression) in [
            (24, &[1, 5, 5, 5][..], "5 * (5 - 1/5)"),
            (24, &[3, 3, 8, 8], "8/(3-8/3)"),
            (-7, &[1, 2, 3], "-1 - 2*3"),
            (1, &[2, 3, 6], "6/2/3"),
            (5, &[2, 3], "+(2)+ -(-3)"),
            (0, &[0, 7], "7*0"),
        ] {
            assert_eq!(solved(target, numbers, expression), Ok(true), "{expression}");
            assert_eq!(solved(target + 1, numbers, expression), Ok(false), "{expression}");
        }
    }

    #[test]
    fn other_expressions_are_wrong() {
        let wrong =
            ["", "1+2", "1+2+3+3", "1+2+3)", "(1+2+3", "1+2+03", "1 2 3", "1+2+3=6", "1+2*3+", "6", "1+2(3)"];
        for expression in wrong {
            assert_eq!(solved(6, &[1, 2, 3], expression), Ok(false), "{expression}");
        }
        assert_eq!(solved(0, &[1, 0], "1/0"), Ok(false));
        assert_eq!(solved(8, &[2, 3], "2**3"), Ok(false));
    }

    #[test]
    fn no_depth_and_no_size_is_a_crash() {
        let deep = format!("{}5{}", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(solved(5, &[5], &deep), Ok(true));
        assert_eq!(solved(5, &[5], &format!("{}5", "-".repeat(100_000))), Ok(true));
        let large = vec![u32::MAX; 5];
        let product = large.iter().map(u32::to_string).collect::<Vec<_>>().join("*");
        assert_eq!(solved(5, &large, &product), Err(TooLarge));
    }

    #[test]
    fn the_last_tag_or_line_is_the_answer() {
        assert_eq!(expression("<answer>1</answer> no <answer> 2 </answer>."), Some("2"));
        assert_eq!(expression("first\n1+2 \n\n"), Some("1+2"));
        for cut in ["", "<answer>1", "<answer>1</answer> or <answer>2", "<answer>\n1+2"] {
            assert_eq!(expression(cut), None, "{cut}");
        }
        assert_eq!(Puzzle::read(r#"{"target": 42, "numbers": [1, 2]}"#).map(|p| p.target), Some(42));
        assert_eq!(Puzzle::read("42"), None);
    }
}
