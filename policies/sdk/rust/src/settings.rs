//! Settings: a struct whose fields a run may set by name.

use crate::types::{BadSetting, Error, Run, Setting, Value};

/// What a run may set of a policy. Derive it:
///
/// ```
/// use allot_policy::Settings;
///
/// #[derive(Settings)]
/// struct Mine {
///     /// Rollouts to try each prompt with.
///     #[setting(default = 8)]
///     pilot: u32,
///     /// Prompts solved less often than this are passed over.
///     #[setting(default = 0.125)]
///     solved_at_least: f64,
/// }
///
/// let described = Mine::describe();
/// assert_eq!(described[1].name, "solved-at-least");
/// assert_eq!(described[0].summary, "Rollouts to try each prompt with.");
/// ```
///
/// The doc comment is the summary shown to people. A number may have bounds:
/// `#[setting(default = 8, minimum = 1, maximum = 64)]`. A field is `bool`, `i32`, `u32`, `f64`,
/// `String`, or an enum that derives [`Choice`](derive@crate::Choice).
pub trait Settings: Sized {
    /// Every setting, in the order of the fields.
    fn describe() -> Vec<Setting>;
    /// The values in force in a run.
    fn read(run: &Run) -> Result<Self, Error>;
}

impl Settings for () {
    fn describe() -> Vec<Setting> {
        Vec::new()
    }

    fn read(_run: &Run) -> Result<Self, Error> {
        Ok(())
    }
}

/// A type that a setting's value can have.
pub trait FromValue: Sized {
    /// Reads the value; the error says what it should have been.
    fn from_value(value: &Value) -> Result<Self, String>;
    /// The value as the contract carries it.
    fn into_value(self) -> Value;
}

/// An enum whose variants are the values of a text setting. Derive it on a fieldless enum: the
/// variant `MaxVariance` is the text `max-variance`.
pub trait Choice: Sized {
    /// All texts.
    const NAMES: &'static [&'static str];
    /// The variant of a text.
    fn from_name(name: &str) -> Option<Self>;
    /// The text of a variant.
    fn name(&self) -> &'static str;
}

impl<C: Choice> FromValue for C {
    fn from_value(value: &Value) -> Result<Self, String> {
        let expected = || format!("expected one of {}", C::NAMES.join(", "));
        match value {
            Value::Text(text) => {
                C::from_name(text).ok_or_else(|| format!("`{text}` is unknown; {}", expected()))
            }
            _ => Err(expected()),
        }
    }

    fn into_value(self) -> Value {
        Value::Text(self.name().to_owned())
    }
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
    };
}

plain!(bool, Flag, "true or false", |v: &bool| Some(*v), |v| v);
plain!(i32, Integer, "a whole number", |v: &i32| Some(*v), |v| v);
plain!(u32, Integer, "a whole number, 0 or more", |v: &i32| u32::try_from(*v).ok(), |v: u32| {
    i32::try_from(v).unwrap_or(i32::MAX)
});
plain!(f64, Number, "a number", |v: &f64| Some(*v), |v| v);
plain!(String, Text, "text", |v: &String| Some(v.clone()), |v| v);

/// Reads one setting of a run. For the derive.
#[doc(hidden)]
pub fn read<T: FromValue>(run: &Run, name: &str) -> Result<T, Error> {
    let bad = |reason| Error::Setting(BadSetting { name: name.to_owned(), reason });
    match run.settings.iter().find(|(n, _)| n == name) {
        Some((_, value)) => T::from_value(value).map_err(bad),
        None => Err(bad("the host did not give it".to_owned())),
    }
}

/// The contract's error for a setting that a policy can't work with.
pub fn bad(name: &str, reason: impl Into<String>) -> Error {
    Error::Setting(BadSetting { name: name.to_owned(), reason: reason.into() })
}

/// Refuses a run in which a prompt gets one rollout in all, for a policy that measures advantages against the prompt's
/// other rollouts: such a run can never learn. `own` is the name and value of the policy's setting for that number, 0
/// where it leaves it to the run.
pub fn needs_two(own: Option<(&str, u32)>, run: &Run) -> Result<(), Error> {
    const WHY: &str =
        "an advantage is measured against the prompt's other rollouts, so nothing can be learned";
    let given = run.rollouts;
    match own {
        _ if or_else(own.map_or(0, |(_, n)| n), given) > 1 => Ok(()),
        Some((name, 1)) => Err(bad(name, format!("it is 1, and {WHY}; set 2 or more"))),
        Some((name, _)) => {
            let what = format!("it leaves the number to `run.rollouts`, which is {given}, and {WHY}");
            Err(bad(name, format!("{what}; set either to 2 or more")))
        }
        None => Err(Error::Other(format!(
            "`run.rollouts` is {given}, and {WHY}; set `run.rollouts` to 2 or more"
        ))),
    }
}

/// A count that a run may leave to something else by setting it to 0.
pub fn or_else(count: u32, default: u32) -> u32 {
    if count == 0 { default } else { count }
}

/// Reads a number of a run that has bounds, infinite ones for none. For the derive.
#[doc(hidden)]
pub fn within<T: FromValue>(run: &Run, name: &str, least: f64, most: f64) -> Result<T, Error> {
    let given = run.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let (number, kind) = match given {
        Some(Value::Integer(integer)) => (f64::from(*integer), "a whole number"),
        Some(Value::Number(number)) => (*number, "a number"),
        _ => return read(run, name),
    };
    if number >= least && number <= most {
        return read(run, name);
    }
    // The words are those of the SDKs of other languages.
    let range = match (least.is_finite(), most.is_finite()) {
        (true, true) => format!(" from {least} to {most}"),
        (true, false) => format!(", {least} or more"),
        (false, _) => format!(", {most} or less"),
    };
    Err(bad(name, format!("{number} is not {kind}{range}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Plan, View};
    use crate::{Policy, begin, run_with};

    struct Bounded;

    #[derive(crate::Settings)]
    struct BoundedSettings {
        /// Both.
        #[setting(default = 8, minimum = 2, maximum = 64)]
        both: u32,
        /// A maximum.
        #[setting(default = 8, maximum = 64)]
        most: i32,
        /// A minimum.
        #[setting(default = 8, minimum = 2)]
        least: u32,
        /// A share.
        #[setting(default = 0.5, minimum = 0, maximum = 1.0)]
        share: f64,
    }

    impl Policy for Bounded {
        const NAME: &'static str = "bounded";
        const VERSION: &'static str = "0.1.0";
        const SUMMARY: &'static str = "has bounds";
        type Settings = BoundedSettings;
        type State = ();

        fn decide(set: &BoundedSettings, _: &Run, (): &mut (), _: &View) -> Result<Plan, Error> {
            let seen = f64::from(set.both) + f64::from(set.most) + f64::from(set.least) + set.share;
            Ok(Plan::train([]).metric("seen", seen))
        }
    }

    #[test]
    fn a_number_outside_of_its_bounds_is_refused() {
        let wrong = [
            ("both", Value::Integer(65), "65 is not a whole number from 2 to 64"),
            ("both", Value::Integer(-1), "-1 is not a whole number from 2 to 64"),
            ("most", Value::Integer(65), "65 is not a whole number, 64 or less"),
            ("least", Value::Integer(1), "1 is not a whole number, 2 or more"),
            ("share", Value::Number(1.25), "1.25 is not a number from 0 to 1"),
            ("share", Value::Number(f64::NAN), "NaN is not a number from 0 to 1"),
            ("share", Value::Flag(true), "expected a number"),
        ];
        for (name, value, reason) in wrong {
            assert_eq!(begin::<Bounded>(&run_with::<Bounded>(&[(name, value)])), Err(bad(name, reason)));
        }
        let ends = [("both", 2), ("both", 64), ("most", i32::MIN), ("least", i32::MAX)];
        for (name, value) in ends {
            assert!(begin::<Bounded>(&run_with::<Bounded>(&[(name, Value::Integer(value))])).is_ok());
        }
    }
}
