//! Python's behaviour in transformers' templates: methods of strings, lists and dictionaries, and filters.

use allot_tasks::template;
use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};

type Result<T> = std::result::Result<T, Error>;

/// Adds the methods, filters, functions and tests to an environment.
pub(super) fn add(environment: &mut Environment<'_>) {
    environment.set_unknown_method_callback(method);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    environment.add_filter("int", |value: &Value, instead: Option<Value>| number(value, instead, true));
    environment.add_filter("float", |value: &Value, instead: Option<Value>| number(value, instead, false));
    environment.add_function("namespace", namespace);
    environment.add_function("cycler", minijinja_contrib::globals::cycler);
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    environment
        .add_test("callable", |value: &Value| value.is_undefined() || value.kind() == ValueKind::Plain);
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && (value.is_undefined() || value.try_iter().is_ok())
    });
    environment.add_test("sequence", |value: &Value| {
        value.is_undefined() || matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
}

fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.into())
}

/// Returns `instead` if the value is undefined or, with `boolean`, false; else the value.
fn default(value: &Value, instead: Option<Value>, boolean: Option<bool>, more: Kwargs) -> Result<Value> {
    let instead = instead.or(more.get("default_value")?).unwrap_or_else(|| "".into());
    let boolean = boolean.or(more.get("boolean")?).unwrap_or(false);
    more.assert_all_used()?;
    Ok(if value.is_undefined() || (boolean && !value.is_true()) { instead } else { value.clone() })
}

/// Converts a text or number to a number, or returns `instead` (default 0) if it is not one.
fn number(value: &Value, instead: Option<Value>, whole: bool) -> Value {
    let text = match value.kind() {
        ValueKind::String | ValueKind::Number => value.to_string(),
        _ => String::new(),
    };
    let text = match value.kind() {
        ValueKind::Bool => {
            if value.is_true() {
                "1"
            } else {
                "0"
            }
        }
        _ => text.trim(),
    };
    let real = text.parse::<f64>().ok();
    let found = match text.parse::<i64>() {
        Ok(number) if whole => Some(Value::from(number)),
        _ if whole => real.filter(|real| real.is_finite()).map(|real| Value::from(real as i64)),
        _ => real.map(Value::from),
    };
    found.or(instead).unwrap_or_else(|| if whole { 0.into() } else { 0.0.into() })
}

/// Returns a namespace of an object's entries, of named values, or of both.
fn namespace(values: Rest<ValueOrKwargs>) -> Result<Value> {
    let mut all = Vec::new();
    for value in values.into_values() {
        let object =
            value.as_object().ok_or_else(|| invalid("`namespace` takes an object, or named values"))?;
        all.extend(object.try_iter_pairs().into_iter().flatten());
    }
    minijinja::functions::namespace(Some(Value::from_pairs(all).into()))
}

/// Python's `len`; 0 for an undefined value.
fn length(value: &Value) -> Result<usize> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| invalid(format!("{} has no length", value.kind())))
}

fn method(state: &mut State<'_, '_>, value: &Value, name: &str, arguments: &[Value]) -> Result<Value> {
    let others = minijinja_contrib::pycompat::unknown_method_callback;
    match (value.as_str(), value.kind()) {
        (Some(text), _) => match of_text(text, name, arguments)? {
            Some(done) => Ok(done),
            None => others(state, value, name, arguments),
        },
        (_, ValueKind::Seq) if name == "index" => {
            let (item,): (&Value,) = from_args(arguments)?;
            let at = value.try_iter()?.position(|one| one == *item);
            at.map(Value::from).ok_or_else(|| invalid("the item is not in the list"))
        }
        (_, ValueKind::Seq | ValueKind::Map) if name == "copy" => {
            let () = from_args(arguments)?;
            Ok(value.clone())
        }
        _ => others(state, value, name, arguments),
    }
}

/// Calls a string method that minijinja lacks or does not limit.
fn of_text(text: &str, name: &str, arguments: &[Value]) -> Result<Option<Value>> {
    let may_have_lists = ["endswith", "format", "join", "startswith"].contains(&name);
    if !may_have_lists && arguments.iter().any(|value| value.as_object().is_some() && !value.is_kwargs()) {
        return Err(invalid(format!("`{name}` takes texts and numbers")));
    }
    let one = || from_args::<(&str,)>(arguments).map(|(one,)| one);
    let separator = |by: &str| if by.is_empty() { Err(invalid("an empty separator")) } else { Ok(()) };
    let parts = |parts: [&str; 3]| Value::from(Tuple::from(parts.map(Value::from)));
    let place = |at: usize| Value::from(text[..at].chars().count());
    let found = |at: Option<usize>| at.map(place).ok_or_else(|| invalid("the text is not found"));
    Ok(Some(match name {
        "replace" => {
            let (from, to, most): (&str, &str, Option<i64>) = from_args(arguments)?;
            template::replace(text, from, to, most)?
        }
        "join" => {
            let (items,): (&Value,) = from_args(arguments)?;
            if items.as_str().is_none() && items.try_iter()?.any(|item| item.as_str().is_none()) {
                return Err(invalid("`join` takes texts"));
            }
            template::join(items, &Value::from(text))?
        }
        "format" => template::format(text, arguments, '{')?.into(),
        "removeprefix" => text.strip_prefix(one()?).unwrap_or(text).into(),
        "removesuffix" => text.strip_suffix(one()?).unwrap_or(text).into(),
        "partition" => {
            let by = one()?;
            separator(by)?;
            parts(text.split_once(by).map_or([text, "", ""], |(before, after)| [before, by, after]))
        }
        "rpartition" => {
            let by = one()?;
            separator(by)?;
            parts(text.rsplit_once(by).map_or(["", "", text], |(before, after)| [before, by, after]))
        }
        "rsplit" => {
            let (by, most): (Option<&str>, Option<i64>) = from_args(arguments)?;
            by.map_or(Ok(()), separator)?;
            let most = most.and_then(|most| usize::try_from(most).ok());
            split_from_the_end(text, by, most).into_iter().map(Value::from).collect()
        }
        "index" => found(text.find(one()?))?,
        "rindex" => found(text.rfind(one()?))?,
        "center" | "ljust" | "rjust" => {
            let (width, fill): (usize, Option<&str>) = from_args(arguments)?;
            let spare = width.saturating_sub(text.chars().count());
            // As Python's `center`: if the padding is odd, the left part is larger where the width is odd.
            let left = match name {
                "center" => spare / 2 + (spare & width & 1),
                "ljust" => 0,
                _ => spare,
            };
            let fill = |times: usize| template::times(fill.unwrap_or(" "), times);
            format!("{}{text}{}", fill(left)?, fill(spare - left)?).into()
        }
        "zfill" => {
            let (width,): (usize,) = from_args(arguments)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            let zeros = template::times("0", width.saturating_sub(text.chars().count()))?;
            format!("{sign}{zeros}{digits}").into()
        }
        "swapcase" => {
            let swapped = |c: char| -> String {
                if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
            };
            text.chars().map(swapped).collect::<String>().into()
        }
        // Python also folds some letters of other languages, such as ß.
        "casefold" => text.to_lowercase().into(),
        _ => return Ok(None),
    }))
}

fn split_from_the_end<'a>(text: &'a str, by: Option<&str>, most: Option<usize>) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut rest = if by.is_none() { text.trim() } else { text };
    while most.is_none_or(|most| parts.len() < most) {
        let split = match by {
            Some(by) => rest.rsplit_once(by),
            None => {
                rest.rfind(char::is_whitespace).map(|at| (rest[..at].trim_end(), rest[at..].trim_start()))
            }
        };
        let Some((before, after)) = split else { break };
        parts.push(after);
        rest = before;
    }
    if by.is_some() || !rest.is_empty() {
        parts.push(rest);
    }
    parts.reverse();
    parts
}
