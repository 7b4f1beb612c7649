//! What a config is made of: values, each with the place where it was written.

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub value: Value,
    pub place: Location,
}

/// A value, as TOML has them. Dates are left out: no key takes one.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Flag(bool),
    Integer(i128),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Table(Vec<(Key, Node)>),
}

/// A key and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub name: String,
    pub place: Location,
}

/// Where something was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In a file, from this byte on. The config's own file is 0, its bases are those after it.
    File { file: usize, at: usize },
    /// In an option of the command line.
    Option(usize),
}
