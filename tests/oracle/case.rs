//! A recorded case: one line of JSON, whose objects keep their order, since upstream's dictionaries do.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Flag(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

static NULL: Json = Json::Null;

impl Json {
    /// A field of a map; null if it has none of that name.
    pub fn get(&self, name: &str) -> &Json {
        self.map().iter().find(|(n, _)| n == name).map_or(&NULL, |(_, value)| value)
    }

    pub fn has(&self, name: &str) -> bool {
        *self.get(name) != Json::Null
    }

    pub fn map(&self) -> &[(String, Json)] {
        match self {
            Json::Map(fields) => fields,
            other => panic!("expected an object, found {other:?}"),
        }
    }

    pub fn list(&self) -> &[Json] {
        match self {
            Json::List(items) => items,
            other => panic!("expected a list, found {other:?}"),
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Json::Text(text) => text,
            other => panic!("expected text, found {other:?}"),
        }
    }

    /// A number; truths are 1 and 0, and `{"nan": true}` and `{"inf": ±1}` what they say.
    pub fn number(&self) -> f64 {
        match self {
            Json::Number(number) => *number,
            Json::Flag(flag) => f64::from(u8::from(*flag)),
            Json::Map(fields) if fields[0].0 == "nan" => f64::NAN,
            Json::Map(fields) if fields[0].0 == "inf" => f64::INFINITY * fields[0].1.number(),
            other => panic!("expected a number, found {other:?}"),
        }
    }

    pub fn count(&self) -> usize {
        let number = self.number();
        assert!(number >= 0.0 && number.fract() == 0.0, "expected a count, found {number}");
        number as usize
    }

    pub fn id(&self) -> u32 {
        self.count() as u32
    }

    /// A truth; a field that is not there is false.
    pub fn flag(&self) -> bool {
        match self {
            Json::Flag(flag) => *flag,
            Json::Null => false,
            other => panic!("expected a truth, found {other:?}"),
        }
    }

    pub fn numbers(&self) -> Vec<f64> {
        self.list().iter().map(Json::number).collect()
    }

    pub fn rewards(&self) -> Vec<f32> {
        self.list().iter().map(|x| x.number() as f32).collect()
    }

    pub fn ids(&self) -> Vec<u32> {
        self.list().iter().map(Json::id).collect()
    }

    pub fn texts(&self) -> Vec<&str> {
        self.list().iter().map(Json::text).collect()
    }

    /// Fails where the map has a field that the check knows nothing of.
    pub fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.map().iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(format!("the field `{name}` is unknown")),
            None => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Json;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Null)
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Json, E> {
                Ok(Json::Flag(flag))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
                Ok(Json::Number(number as f64))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
                Ok(Json::Number(number as f64))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
                Ok(Json::Number(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Json, E> {
                Ok(Json::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Json::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
                let mut map = Vec::new();
                while let Some(field) = fields.next_entry()? {
                    map.push(field);
                }
                Ok(Json::Map(map))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

/// What a check found.
pub enum Verdict {
    /// Our decision is upstream's.
    Agrees,
    /// It is not, on purpose: why. What it is instead has been checked.
    Departs(&'static str),
}

/// The outcome of a check; the error says what is wrong.
pub type Checked = Result<Verdict, String>;

/// Ends the check with what is wrong.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        let holds: bool = $condition;
        if !holds {
            return Err(format!($($message)+));
        }
    };
}

/// Ends the check where two things differ.
macro_rules! same {
    ($ours:expr, $theirs:expr, $($what:tt)+) => {
        let (ours, theirs) = (&$ours, &$theirs);
        if ours != theirs {
            return Err(format!("{}: ours {ours:?}, upstream's {theirs:?}", format!($($what)+)));
        }
    };
}

pub(crate) use {ensure, same};

/// Whether two numbers are one within a relative tolerance, or an absolute one of the same size.
pub fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(1.0)
}
