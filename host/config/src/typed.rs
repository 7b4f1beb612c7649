//! Converts a config's tree to a type. Every config is read through this module.
//!
//! serde's derive accepts a list for a struct, with the fields in order, so `optimizer = [1]` would be a
//! learning rate of 1. Here a section must be a table, whatever its type.

use std::fmt;

use allot_allocation::shown;
use serde::de::value::{StrDeserializer, StringDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};

use crate::node::{Key, Location, Node, Value};

/// An error of converting a tree to a type.
#[derive(Debug)]
pub(super) struct Fault {
    /// The message.
    pub what: String,
    /// The place, if it is known yet.
    pub place: Option<Location>,
    /// The keys of the enclosing sections, innermost first.
    pub path: Vec<String>,
    /// An unknown name, with the known ones.
    pub unknown: Option<(String, Vec<String>)>,
    /// A missing key.
    pub missing: Option<&'static str>,
}

impl Fault {
    pub fn new(what: impl Into<String>, place: Option<Location>) -> Self {
        Self { what: what.into(), place, path: Vec::new(), unknown: None, missing: None }
    }

    /// Returns the error of TOML's parser. `place` converts a byte offset to a place.
    pub fn of_toml(error: &toml::de::Error, place: impl Fn(usize) -> Location) -> Self {
        let what = shown::line(error.message(), shown::LINE);
        Self::new(what, error.span().map(|span| place(span.start)))
    }

    /// Returns the error for an unknown name. `expected` has the known ones.
    fn unknown(what: String, name: &str, expected: &'static [&'static str]) -> Self {
        let known = expected.iter().map(|name| (*name).to_owned()).collect();
        Self { unknown: Some((name.to_owned(), known)), ..Self::new(what, None) }
    }

    /// Sets the place, if there is none yet.
    fn at(mut self, place: Location) -> Self {
        self.place.get_or_insert(place);
        self
    }

    /// Adds an enclosing section.
    fn within(mut self, key: &str) -> Self {
        self.path.push(key.to_owned());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Fault {}

impl serde::de::Error for Fault {
    /// Takes a message from a type's own `Deserialize`, such as one that refuses a value.
    fn custom<T: fmt::Display>(what: T) -> Self {
        let what = shown::line(&what.to_string(), shown::LINE);
        // `AnyGrader` lists needs after each grader's name, which `unknown_variant` does not support.
        let mut names = what.split('`').skip(1).step_by(2).map(str::to_owned);
        let unknown = what.starts_with("unknown variant").then(|| names.next()).flatten();
        let unknown = unknown.map(|name| (name, names.collect()));
        Self { unknown, ..Self::new(what, None) }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("invalid type: {}, expected {}", in_words(found), wanted(expected)), None)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("invalid value: {}, expected {}", in_words(found), wanted(expected)), None)
    }

    fn unknown_variant(name: &str, expected: &'static [&'static str]) -> Self {
        let wanted = match expected {
            [] => "there are no variants".to_owned(),
            [one] => format!("expected `{one}`"),
            [one, other] => format!("expected `{one}` or `{other}`"),
            _ => format!("expected one of {}", allot_base::listed(expected.iter().copied())),
        };
        let what = shown::line(&format!("unknown variant `{name}`, {wanted}"), shown::LINE);
        Self::unknown(what, name, expected)
    }

    fn unknown_field(name: &str, expected: &'static [&'static str]) -> Self {
        let name = &shown::name(name);
        let known = allot_base::listed(expected.iter().copied());
        let what = match expected {
            [] => format!("unknown field `{name}`, there are no fields"),
            [_] => format!("unknown field `{name}`, expected {known}"),
            _ => format!("unknown field `{name}`, expected one of {known}"),
        };
        Self::unknown(what, name, expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self { missing: Some(field), ..Self::new(format!("missing field `{field}`"), None) }
    }
}

/// Returns the found value in words, with TOML's names of types.
fn in_words(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Seq => "list".to_owned(),
        Unexpected::Map => "table".to_owned(),
        found => shown::line(&found.to_string(), shown::LINE),
    }
}

/// Names of types as serde prints them, with names that users understand. A test compares the first of each
/// pair with serde.
const TYPES: [(&str, &str); 8] = [
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number, 0 or more"),
    ("usize", "a whole number, 0 or more"),
    ("f32", "a number"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a map", "a table"),
];

/// Returns the expected type in words for users.
fn wanted(expected: &dyn Expected) -> String {
    let named = expected.to_string();
    TYPES.iter().find(|(serde, _)| *serde == named).map_or(named, |(_, words)| (*words).to_owned())
}

/// A tree that serde reads strictly.
#[derive(Clone, Copy)]
pub(super) struct Strict<'t> {
    node: &'t Node,
}

impl<'t> Strict<'t> {
    pub fn of(node: &'t Node) -> Self {
        Self { node }
    }

    /// Returns the error for a value that is not a table.
    fn no_table(self) -> Fault {
        let found = match &self.node.value {
            Value::Flag(flag) => format!("boolean `{flag}`"),
            Value::Integer(n) => format!("integer `{n}`"),
            Value::Number(x) => format!("floating point `{x}`"),
            Value::Text(text) => format!("string {}", shown::word(&format!("{text:?}"), shown::NAME)),
            Value::List(_) => "list".to_owned(),
            Value::Table(_) => "table".to_owned(),
        };
        let what = format!("invalid type: {found}, expected a section, whose values are given by key");
        Fault::new(what, Some(self.node.place))
    }
}

/// Prefix of serde's name for the visitor of a tagged enum, which also accepts lists. A test checks it.
const TAGGED: &str = "internally tagged enum";

impl<'de> Deserializer<'de> for Strict<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let read = match &self.node.value {
            Value::Flag(flag) => visitor.visit_bool(*flag),
            Value::Integer(n) => match (i64::try_from(*n), u64::try_from(*n)) {
                (Ok(n), _) => visitor.visit_i64(n),
                (_, Ok(n)) => visitor.visit_u64(n),
                _ => visitor.visit_i128(*n),
            },
            Value::Number(x) => visitor.visit_f64(*x),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(_) if (&visitor as &dyn Expected).to_string().starts_with(TAGGED) => {
                return Err(self.no_table());
            }
            Value::List(items) => visitor.visit_seq(Items { items: items.iter(), at: 0 }),
            Value::Table(entries) => visitor.visit_map(Entries { entries: entries.iter(), value: None }),
        };
        read.map_err(|fault| fault.at(self.node.place))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.node.value {
            Value::Table(_) => self.deserialize_any(visitor),
            _ => Err(self.no_table()),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let place = self.node.place;
        let read = match &self.node.value {
            Value::Text(text) => visitor.visit_enum(StringDeserializer::new(text.clone())),
            Value::Table(entries) => match entries.as_slice() {
                [(key, node)] => visitor.visit_enum(Variant { key, node }),
                _ => Err(Fault::new("wanted exactly one key", None)),
            },
            _ => Err(Fault::new("wanted a text", None)),
        };
        read.map_err(|fault| fault.at(place))
    }

    serde::forward_to_deserialize_any! {
        bool u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char str string seq
        bytes byte_buf map unit
        ignored_any unit_struct tuple_struct tuple identifier
    }
}

/// The items of a list.
struct Items<'t> {
    items: std::slice::Iter<'t, Node>,
    at: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let Some(node) = self.items.next() else { return Ok(None) };
        let at = self.at;
        self.at += 1;
        seed.deserialize(Strict { node })
            .map(Some)
            .map_err(|fault| fault.at(node.place).within(&at.to_string()))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The entries of a table.
struct Entries<'t> {
    entries: std::slice::Iter<'t, (Key, Node)>,
    value: Option<&'t (Key, Node)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        self.value = Some(entry);
        let key: StrDeserializer<'_, Fault> = entry.0.name.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|fault| fault.at(entry.0.place))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let Some((key, node)) = self.value.take() else {
            return Err(Fault::new("a value was asked for before its key", None));
        };
        seed.deserialize(Strict { node }).map_err(|fault| fault.at(node.place).within(&key.name))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

/// An enum's variant with a value.
struct Variant<'t> {
    key: &'t Key,
    node: &'t Node,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Fault> {
        let key: StrDeserializer<'_, Fault> = self.key.name.as_str().into_deserializer();
        let name = seed.deserialize(key).map_err(|fault| fault.at(self.key.place))?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Err(Fault::new("it takes no value; give only its name, as a text", Some(self.node.place)))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        seed.deserialize(Strict { node: self.node })
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        Strict { node: self.node }.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        Strict { node: self.node }.deserialize_struct("", fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    /// Returns the error for a type that gets a text.
    fn said<T: for<'de> Deserialize<'de> + fmt::Debug>() -> String {
        let node = Node { value: Value::Text("x".to_owned()), place: Location::Option(0) };
        T::deserialize(Strict::of(&node)).map_or_else(|fault| fault.what, |value| format!("{value:?}"))
    }

    #[test]
    fn types_are_called_as_serde_calls_them() {
        let said = [
            said::<u32>(),
            said::<u64>(),
            said::<usize>(),
            said::<f32>(),
            said::<f64>(),
            said::<bool>(),
            said::<Vec<u32>>(),
            said::<BTreeMap<String, u32>>(),
        ];
        for (said, (serde, words)) in said.iter().zip(TYPES) {
            let wanted = format!("invalid type: string \"x\", expected {words}");
            assert_eq!(said, &wanted, "serde no longer says `{serde}`");
        }
    }

    #[test]
    fn an_enum_with_a_tag_takes_no_list() {
        #[derive(Debug, Deserialize)]
        #[serde(tag = "use")]
        enum Tagged {
            One,
        }
        let node = Node { value: Value::List(Vec::new()), place: Location::Option(0) };
        let told = Tagged::deserialize(Strict::of(&node)).map_err(|fault| fault.what);
        let wanted = "invalid type: list, expected a section, whose values are given by key";
        assert!(matches!(&told, Err(what) if what == wanted), "{told:?}; serde no longer says `{TAGGED}`");
    }
}
