//! Operators and filters that count their result before they make it. Otherwise they are Jinja's.

use std::fmt::Write;

use minijinja::filters as plain;
use minijinja::tests;
use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};

use super::invalid;
use super::json::to_json;
use super::made::{self, Counting, count};
use super::shown::Shown;

/// Names of the operators' filters, which a template cannot write.
pub(super) const ADD: &str = "+";
pub(super) const MULTIPLY: &str = "*";
pub(super) const REMAINDER: &str = "%";
pub(super) const CONCATENATE: &str = "~";
pub(super) const SLICE: &str = "[:]";
/// Prepares the operands of `in` and of comparisons.
pub(super) const PAIR: &str = "in";
/// All filters of instructions. minijinja can keep this many, beside those that a template names.
pub(super) const ALL: [&str; 10] =
    [ADD, MULTIPLY, REMAINDER, CONCATENATE, SLICE, PAIR, ITEMS, made::COUNTED, made::NESTED, made::STORED];
/// Checks the value that a loop is over: `none` has no items in Python.
pub(super) const ITEMS: &str = "[]";

/// Adds the filters and a formatter to an environment.
pub(super) fn add(environment: &mut Environment<'_>) {
    environment.set_formatter(emit);
    environment.add_filter(ADD, sum);
    environment.add_filter(MULTIPLY, product);
    environment.add_filter(REMAINDER, remainder);
    environment.add_filter(CONCATENATE, |a: &Value, b: &Value| {
        made::text(|out| write!(out, "{}{}", Shown(a), Shown(b)))
    });
    environment.add_filter(SLICE, slice);
    environment.add_filter(PAIR, |a: Value, b: Value| {
        let a = if b.as_str().is_some() { written(a)? } else { a };
        // `UnpackList` pushes the first item last.
        Ok::<_, Error>(Value::from(vec![b, a]))
    });
    let of_texts = [
        ("capitalize", Value::from_function(plain::capitalize)),
        ("lines", Value::from_function(plain::lines)),
        ("lower", Value::from_function(plain::lower)),
        ("split", Value::from_function(plain::split)),
        ("title", Value::from_function(plain::title)),
        ("trim", Value::from_function(plain::trim)),
        ("upper", Value::from_function(plain::upper)),
    ];
    for (name, filter) in of_texts {
        environment.add_filter(name, move |state: &mut State<'_, '_>, given: Rest<ValueOrKwargs>| {
            let given: Result<Vec<Value>, Error> = given.into_values().into_iter().map(written).collect();
            filter.call(state, &given?)
        });
    }
    environment.add_test("startingwith", |text: &Value, part: &Value| {
        Ok::<_, Error>(string(text)?.starts_with(&string(part)?))
    });
    environment.add_test("endingwith", |text: &Value, part: &Value| {
        Ok::<_, Error>(string(text)?.ends_with(&string(part)?))
    });
    environment.add_test("in", |state: &State<'_, '_>, value: Value, of: &Value| {
        tests::is_in(state, &if of.as_str().is_some() { written(value)? } else { value }, of)
    });
    environment.add_filter(ITEMS, |value: Value| {
        if value.is_none() { Err(invalid("none has no items to loop over")) } else { Ok(value) }
    });
    environment.add_filter(made::COUNTED, made::counted);
    environment.add_filter(made::NESTED, made::nested);
    environment.add_filter(made::STORED, made::stored);
    environment.add_filter(
        "batch",
        |state: &State<'_, '_>, value: Value, size: usize, fill: Option<Value>| {
            count(if fill.is_some() { size.saturating_mul(made::ITEM) } else { 0 })?;
            plain::batch(state, value, size, fill)
        },
    );
    environment.add_filter(
        "slice",
        |state: &State<'_, '_>, value: Value, lists: usize, fill: Option<Value>| {
            count(lists.saturating_mul(made::ENTRY))?;
            plain::slice(state, value, lists, fill)
        },
    );
    environment.add_filter("e", escaped);
    environment.add_filter("escape", escaped);
    environment.add_filter("format", |template: &str, values: Rest<Value>| format(template, &values, '%'));
    environment.add_filter("indent", indent);
    environment.add_filter("join", |state: &mut State, value: Value, by: Option<Value>, more: Kwargs| {
        let by = by.or(more.get("d")?).unwrap_or_else(|| "".into());
        let value = match more.get::<Option<Value>>("attribute")? {
            Some(name) => {
                let by_name = Value::from(Kwargs::from_iter([("attribute", name)]));
                plain::map(state, value, Rest(vec![by_name.into()]))?.into()
            }
            None => value,
        };
        more.assert_all_used()?;
        join(&value, &by)
    });
    environment.add_filter("map", map);
    environment.add_filter("replace", |value: &Value, from: &Value, to: &Value, most: Option<i64>| {
        replace(&string(value)?, &string(from)?, &string(to)?, most)
    });
    environment.add_filter("string", string);
    environment.add_filter("tojson", to_json);
    // These show a value of any size.
    environment.remove_filter("pprint");
    environment.remove_global("debug");
}

fn emit(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match (state.auto_escape(), value.as_str()) {
        (AutoEscape::None, Some(text)) => {
            count(text.len())?;
            Ok(out.write_str(text)?)
        }
        (AutoEscape::None, None) => Ok(write!(Counting(out), "{}", Shown(value))?),
        _ => {
            // An escaped character has at most six bytes.
            let text = made::text(|out| write!(out, "{}", Shown(value)))?;
            count(6 * text.len())?;
            let text = if value.is_safe() { Value::from_safe_string(text) } else { text.into() };
            minijinja::escape_formatter(out, state, &text)
        }
    }
}

/// Converts a list or object to text, which minijinja would do without a limit. Other values are unchanged.
fn written(value: Value) -> Result<Value, Error> {
    let is_made = value.as_object().is_some() && !value.is_kwargs();
    if is_made { Ok(string(&value)?.into()) } else { Ok(value) }
}

/// Returns a value as Python's `str` shows it.
pub fn string(value: &Value) -> Result<String, Error> {
    made::text(|out| write!(out, "{}", Shown(value)))
}

/// Returns the text of a value, escaped for HTML unless it is safe.
fn safe(value: &Value) -> Result<String, Error> {
    let text = string(value)?;
    if value.is_safe() {
        return Ok(text);
    }
    made::text(|out| {
        text.chars().try_for_each(|c| match c {
            '&' => out.write_str("&amp;"),
            '<' => out.write_str("&lt;"),
            '>' => out.write_str("&gt;"),
            '\'' => out.write_str("&#39;"),
            '"' => out.write_str("&#34;"),
            c => out.write_char(c),
        })
    })
}

fn escaped(value: &Value) -> Result<Value, Error> {
    Ok(Value::from_safe_string(safe(value)?))
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

fn sum(a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(left), Some(right)) = (a.as_str(), b.as_str()) {
        count(left.len() + right.len())?;
        // As in markupsafe, text added to a safe text is escaped.
        return match (a.is_safe(), b.is_safe()) {
            (false, false) => Ok([left, right].concat().into()),
            _ => Ok(Value::from_safe_string([safe(a)?, safe(b)?].concat())),
        };
    }
    if is_list(a) && is_list(b) && a.is_tuple() == b.is_tuple() {
        let mut items = made::listed(a)?;
        items.extend(made::listed(b)?);
        return Ok(if a.is_tuple() { Tuple::from(items).into() } else { items.into() });
    }
    match numbers(a, b) {
        Some(Numbers::Whole(a, b)) => whole(a.checked_add(b)),
        Some(Numbers::Real(a, b)) => Ok((a + b).into()),
        None => Err(unsupported("+", a, b)),
    }
}

fn product(a: &Value, b: &Value) -> Result<Value, Error> {
    let (of, times) = if b.as_str().is_some() || is_list(b) { (b, a) } else { (a, b) };
    if of.as_str().is_some() || is_list(of) {
        if !times.is_integer() {
            return Err(unsupported("*", a, b));
        }
        // A negative count repeats zero times.
        let times = i64::try_from(times.clone())?.max(0) as usize;
        if let Some(text) = of.as_str() {
            return Ok(self::times(text, times)?.into());
        }
        let items = made::listed(of)?;
        count(items.len().saturating_mul(made::ITEM).saturating_mul(times))?;
        let all = items.len() * times;
        let items: Vec<Value> = items.into_iter().cycle().take(all).collect();
        return Ok(if of.is_tuple() { Tuple::from(items).into() } else { items.into() });
    }
    match numbers(a, b) {
        Some(Numbers::Whole(a, b)) => whole(a.checked_mul(b)),
        Some(Numbers::Real(a, b)) => Ok((a * b).into()),
        None => Err(unsupported("*", a, b)),
    }
}

/// Python's `%`: a remainder with the divisor's sign, or a text with values inserted.
fn remainder(a: &Value, b: &Value) -> Result<Value, Error> {
    if let Some(template) = a.as_str() {
        let values = if b.is_tuple() { made::listed(b)? } else { vec![b.clone()] };
        return Ok(format(template, &values, '%')?.into());
    }
    match numbers(a, b) {
        Some(Numbers::Whole(_, 0) | Numbers::Real(_, 0.0)) => Err(invalid("a remainder of zero")),
        Some(Numbers::Whole(a, b)) => {
            let rest = a.checked_rem(b).unwrap_or_default();
            whole(Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }))
        }
        Some(Numbers::Real(a, b)) => {
            let rest = a % b;
            Ok(if rest == 0.0 {
                0.0_f64.copysign(b)
            } else if (rest < 0.0) != (b < 0.0) {
                rest + b
            } else {
                rest
            }
            .into())
        }
        None => Err(unsupported("%", a, b)),
    }
}

/// Python's slice of a text or list: bounds outside of it are clamped.
fn slice(of: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value, Error> {
    let bound =
        |value: &Value| if value.is_none() { Ok(None) } else { i64::try_from(value.clone()).map(Some) };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(invalid("a slice's step is 0"));
    }
    let indexes = |length: usize| {
        let length = length as i64;
        let (least, most) = if step > 0 { (0, length) } else { (-1, length - 1) };
        let place =
            |bound: i64| if bound < 0 { bound.saturating_add(length) } else { bound }.clamp(least, most);
        let (first, last) = if step > 0 { (least, most) } else { (most, least) };
        let (first, last) = (start.map_or(first, place), stop.map_or(last, place));
        let more = move |at: &i64| if step > 0 { *at < last } else { *at > last };
        std::iter::successors(Some(first), move |at| at.checked_add(step))
            .take_while(more)
            .map(|at| at as usize)
    };
    if let Some(text) = of.as_str() {
        count(text.len())?;
        if step == 1 && start.is_none_or(|start| start >= 0) && stop.is_none_or(|stop| stop >= 0) {
            let start = start.unwrap_or(0) as usize;
            let most = stop.map_or(usize::MAX, |stop| (stop as usize).saturating_sub(start));
            return Ok(text.chars().skip(start).take(most).collect::<String>().into());
        }
        count(4 * text.len())?;
        let characters: Vec<char> = text.chars().collect();
        return Ok(indexes(characters.len()).map(|at| characters[at]).collect::<String>().into());
    }
    if of.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "a slice of an undefined value"));
    }
    if !is_list(of) {
        return Ok(Value::UNDEFINED);
    }
    let items = made::listed(of)?;
    let part: Vec<Value> = indexes(items.len()).map(|at| items[at].clone()).collect();
    Ok(if of.is_tuple() { Tuple::from(part).into() } else { part.into() })
}

enum Numbers {
    Whole(i128, i128),
    Real(f64, f64),
}

fn numbers(a: &Value, b: &Value) -> Option<Numbers> {
    let is_number = |x: &Value| matches!(x.kind(), ValueKind::Number | ValueKind::Bool);
    if !is_number(a) || !is_number(b) {
        return None;
    }
    let is_whole = |x: &Value| x.is_integer() || x.kind() == ValueKind::Bool;
    let whole = |x: &Value| i128::try_from(x.clone()).ok();
    if is_whole(a) && is_whole(b) {
        return Some(Numbers::Whole(whole(a)?, whole(b)?));
    }
    let real =
        |x: &Value| if is_whole(x) { whole(x).map(|x| x as f64) } else { f64::try_from(x.clone()).ok() };
    Some(Numbers::Real(real(a)?, real(b)?))
}

fn whole(number: Option<i128>) -> Result<Value, Error> {
    let number = number.ok_or_else(|| invalid("a number is too large"))?;
    Ok(i64::try_from(number).map_or_else(|_| number.into(), Value::from))
}

fn unsupported(operator: &str, a: &Value, b: &Value) -> Error {
    invalid(format!("`{operator}` of {} and {}", a.kind(), b.kind()))
}

/// Joins the texts of a list, or the characters of a text.
pub fn join(value: &Value, by: &Value) -> Result<Value, Error> {
    let joined = made::text(|out| {
        let mut first = true;
        let mut one = |item: &dyn std::fmt::Display| {
            if !std::mem::take(&mut first) {
                write!(out, "{}", Shown(by))?;
            }
            write!(out, "{item}")
        };
        match value.as_str() {
            Some(text) => text.chars().try_for_each(|c| one(&c)),
            None => value.try_iter().map_err(|_| std::fmt::Error)?.try_for_each(|item| one(&Shown(&item))),
        }
    });
    Ok(joined?.into())
}

/// Replaces all occurrences of a part of a text, or the first `most`.
pub fn replace(text: &str, from: &str, to: &str, most: Option<i64>) -> Result<Value, Error> {
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let times = text.matches(from).count().min(most);
    count(text.len().saturating_add(times.saturating_mul(to.len())))?;
    Ok(text.replacen(from, to, most).into())
}

/// Repeats a text.
pub fn times(text: &str, times: usize) -> Result<String, Error> {
    count(text.len().saturating_mul(times))?;
    Ok(text.repeat(times))
}

/// Inserts values into a text, as Python's `%` or, with braces, `format` does.
pub fn format(template: &str, values: &[Value], mark: char) -> Result<String, Error> {
    let mut longest = 0;
    for value in values {
        longest = longest.max(made::text(|out| write!(out, "{}", Shown(value)))?.len());
    }
    // A width is in the template or, for `*` or a brace within a brace, a number among the values.
    let digits = template.split(|c: char| !c.is_ascii_digit());
    let widths =
        digits.filter(|digits| !digits.is_empty()).map(|digits| digits.parse().unwrap_or(usize::MAX));
    let given = values.iter().filter_map(Value::as_i64).map(|n| n.unsigned_abs() as usize).max();
    let given = if template.contains(['*', '{']) { given.unwrap_or(0) } else { 0 };
    let places = template.matches(mark).count();
    // Escaping makes a character at most four times as long.
    let each = longest.saturating_mul(4).saturating_add(given);
    count(widths.fold(template.len(), usize::saturating_add).saturating_add(places.saturating_mul(each)))?;
    let style = if mark == '%' {
        minijinja::formatting::FormatStyle::Printf
    } else {
        minijinja::formatting::FormatStyle::StrFormat
    };
    minijinja::formatting::format(style, template, values)
}

/// Indents all lines of a text but the first one and empty ones, by spaces or another text.
fn indent(
    text: &Value,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    more: Kwargs,
) -> Result<String, Error> {
    let width = width.or(more.get("width")?).unwrap_or_else(|| 4.into());
    let (first, blank) = (first.or(more.get("first")?), blank.or(more.get("blank")?));
    more.assert_all_used()?;
    let space = match width.as_str() {
        Some(text) => text.to_owned(),
        None => times(" ", usize::try_from(width)?)?,
    };
    let text = string(text)?;
    made::text(|out| {
        for (at, line) in text.split('\n').enumerate() {
            if at > 0 {
                out.write_char('\n')?;
            }
            if if at == 0 { first == Some(true) } else { blank == Some(true) || !line.is_empty() } {
                out.write_str(&space)?;
            }
            out.write_str(line)?;
        }
        Ok(())
    })
}

/// Applies a filter to each item and counts each result.
fn map(state: &mut State<'_, '_>, value: Value, more: Rest<ValueOrKwargs>) -> Result<Vec<Value>, Error> {
    let given = more.into_values();
    let name = match given.first().and_then(|name| name.as_str()) {
        Some(name) => name.to_owned(),
        None => return plain::map(state, value, Rest(given.into_iter().map(Into::into).collect())),
    };
    let mut items = made::listed(&value)?;
    for item in &mut items {
        let arguments: Vec<Value> = [item.clone()].into_iter().chain(given[1..].iter().cloned()).collect();
        *item = made::nested(state.apply_filter(&name, &arguments)?)?;
    }
    Ok(items)
}
