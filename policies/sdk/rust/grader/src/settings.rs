//! Settings: a struct whose fields a run may set by name.

use crate::types::{BadSetting, Error, Setting, Value};

/// What a run may set of a grader. [`settings!`](macro@crate::settings) makes one.
pub trait Settings: Sized {
    /// Every setting, in the order of the fields.
    fn describe() -> Vec<Setting>;
    /// The values in force.
    fn read(given: &[(String, Value)]) -> Result<Self, Error>;
}

impl Settings for () {
    fn describe() -> Vec<Setting> {
        Vec::new()
    }

    fn read(_given: &[(String, Value)]) -> Result<Self, Error> {
        Ok(())
    }
}

/// Defines a struct of settings. Each field has a doc comment, which is the summary shown to people, and a default. It
/// is a `bool`, `i32`, `u32`, `f64` or `String`.
///
/// ```
/// use allot_grader::{Settings, settings};
///
/// settings! {
///     /// What a run may set.
///     pub struct Mine {
///         /// How far a number may be from gold.
///         at_most_off: f64 = 0.5,
///     }
/// }
///
/// assert_eq!(Mine::describe()[0].name, "at-most-off");
/// assert_eq!(Mine::describe()[0].summary, "How far a number may be from gold.");
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$about:meta])*
        $access:vis struct $name:ident {
            $($(#[doc = $summary:literal])+ $field:ident: $type:ty = $default:expr),* $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        $access struct $name {
            $($(#[doc = $summary])+ $access $field: $type),*
        }

        impl $crate::Settings for $name {
            fn describe() -> Vec<$crate::types::Setting> {
                vec![$($crate::types::Setting {
                    name: $crate::kebab(stringify!($field)),
                    default: <$type as $crate::FromValue>::into_value(<$type>::from($default)),
                    summary: $crate::summary(&[$($summary),+]),
                }),*]
            }

            fn read(
                given: &[(String, $crate::types::Value)],
            ) -> Result<Self, $crate::types::Error> {
                Ok(Self { $($field: $crate::settings_read(given, stringify!($field))?),* })
            }
        }
    };
}

/// A type that a setting's value can have.
pub trait FromValue: Sized {
    /// Reads the value; the error says what it should have been.
    fn from_value(value: &Value) -> Result<Self, String>;
    /// The value as the contract carries it.
    fn into_value(self) -> Value;
}

macro_rules! plain {
    ($type:ty, $variant:ident, $expected:literal, $read:expr, $write:expr) => {
        impl FromValue for $type {
            fn from_value(value: &Value) -> Result<Self, String> {
                match value {
                    Value::$variant(v) => $read(v).ok_or_else(|| format!("{} is not {}", v, $expected)),
                    _ => Err(concat!("expected ", $expected).to_owned()),
                }
            }

            fn into_value(self) -> Value {
                Value::$variant($write(self))
            }
        }

        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                value.into_value()
            }
        }
    };
}

plain!(bool, Flag, "true or false", |v: &bool| Some(*v), |v| v);
plain!(i32, Integer, "a whole number", |v: &i32| Some(*v), |v| v);
plain!(u32, Integer, "a whole number, 0 or more", |v: &i32| u32::try_from(*v).ok(), |v: u32| {
    i32::try_from(v).unwrap_or(i32::MAX)
});
plain!(f64, Number, "a number", |v: &f64| Some(*v), |v| v);
plain!(String, Text, "text", |v: &String| Some(v.clone()), |v| v);

/// Reads a setting, by the name of its field. For [`settings!`](macro@crate::settings).
#[doc(hidden)]
pub fn read<T: FromValue>(given: &[(String, Value)], field: &str) -> Result<T, Error> {
    let name = kebab(field);
    match given.iter().find(|(known, _)| *known == name) {
        Some((_, value)) => T::from_value(value).map_err(|reason| bad(&name, reason)),
        None => Err(bad(&name, "the host did not give it")),
    }
}

/// A field's name as a setting's.
#[doc(hidden)]
pub fn kebab(field: &str) -> String {
    field.replace('_', "-")
}

/// The lines of a doc comment as one.
#[doc(hidden)]
pub fn summary(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// The contract's error for a setting that a grader can't work with.
pub fn bad(name: &str, reason: impl Into<String>) -> Error {
    Error::Setting(BadSetting { name: name.to_owned(), reason: reason.into() })
}
