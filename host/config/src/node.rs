//! Nodes of a config's tree: values with the places where they were written.

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub value: Value,
    pub place: Location,
}

impl Node {
    /// Returns the value of a table's key.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Value::Table(entries) = &self.value else { return None };
        entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    /// Returns the value of a table's key.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        let Value::Table(entries) = &mut self.value else { return None };
        entries.iter_mut().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    /// Removes a table's key and returns its value.
    pub fn take(&mut self, name: &str) -> Option<Self> {
        let Value::Table(entries) = &mut self.value else { return None };
        let at = entries.iter().position(|(key, _)| key.name == name)?;
        Some(entries.remove(at).1)
    }

    /// Removes a key of tables within tables, with dots between the names. Returns whether it was there.
    pub fn remove(&mut self, path: &str) -> bool {
        let Some((table, rest)) = path.split_once('.') else { return self.take(path).is_some() };
        self.get_mut(table).is_some_and(|node| node.remove(rest))
    }

    /// Returns whether an option on the command line set it.
    pub fn is_typed(&self) -> bool {
        matches!(self.place, Location::Option(_))
    }
}

/// A TOML value. Dates are converted to text.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Flag(bool),
    Integer(i128),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Table(Vec<(Key, Node)>),
}

/// A key with its place.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub name: String,
    pub place: Location,
}

/// A place where a key or value was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In a file, starting at this byte. File 0 is the config's own; its bases follow.
    File { file: usize, at: usize },
    /// In an option on the command line, by its index.
    Option(usize),
}
