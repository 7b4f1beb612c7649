//! Computes a component's settings from the values that a run gives.

use std::collections::BTreeMap;
use std::fmt::Display;

use allot_allocation::Value;
use allot_base::{Error, Result, did_you_mean};

use crate::Setting;

/// Returns every setting that a component described, with the value given in TOML or else the default.
/// Unknown settings and values of a wrong type are errors. `owner` names the component: "policy `uniform`".
pub fn settings(
    owner: &str,
    described: &[Setting],
    given: &BTreeMap<String, toml::Value>,
) -> Result<Vec<(String, Value)>> {
    in_force(owner, described, given, fit)
}

/// Does the same for values of any type. `fit` converts a value to the type of the default, if possible.
pub fn in_force<V: Display>(
    owner: &str,
    described: &[Setting],
    given: &BTreeMap<String, V>,
    fit: impl Fn(&V, &Value) -> Option<Value>,
) -> Result<Vec<(String, Value)>> {
    let names = described.iter().map(|s| s.name.as_str());
    if let Some(unknown) = given.keys().find(|k| described.iter().all(|s| s.name != **k)) {
        let error = Error::new(format!("{owner} has no setting `{unknown}`"));
        return Err(error.hint(did_you_mean(unknown, names)));
    }
    let value = |setting: &Setting| match given.get(&setting.name) {
        None => Ok(setting.default.clone()),
        Some(given) => fit(given, &setting.default).ok_or_else(|| {
            let (name, kind) = (&setting.name, setting.default.kind());
            Error::new(format!("{owner}: setting `{name}` is {given}; it must be {kind}"))
        }),
    };
    described.iter().map(|s| Ok((s.name.clone(), value(s)?))).collect()
}

/// Converts a TOML value to the type of the default. An integer is accepted for a number.
fn fit(given: &toml::Value, default: &Value) -> Option<Value> {
    match (default, given) {
        (Value::Flag(_), toml::Value::Boolean(v)) => Some(Value::Flag(*v)),
        (Value::Integer(_), toml::Value::Integer(v)) => i32::try_from(*v).ok().map(Value::Integer),
        (Value::Number(_), toml::Value::Integer(v)) => Some(Value::Number(*v as f64)),
        (Value::Number(_), toml::Value::Float(v)) if v.is_finite() => Some(Value::Number(*v)),
        (Value::Text(_), toml::Value::String(v)) => Some(Value::Text(v.clone())),
        _ => None,
    }
}
