//! Reads Python's pickles as data: numbers, texts, lists and dictionaries. Nothing in a pickle is ever called.
//!
//! A list of numbers is kept as its length alone: token ids and log-probabilities are most of a file, and only how many there
//! are counts here. Objects (tensors, for one) are opaque. serde-pickle refuses a file that has tensors; candle's reader, which is
//! for them, copies a list when it is stored, and finds it empty wherever it is named again.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{BufRead, Read};

use serde_json::{Map, Number, Value};

/// A value, of which lists and dictionaries are in [`Pickle::nodes`], as several places may have the same one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    None,
    Bool(bool),
    Number(f64),
    Node(usize),
    /// An object, a class, or bytes.
    Opaque,
    /// A mark on the stack.
    Mark,
}

/// A value that may be shared.
#[derive(Debug)]
enum Node {
    Text(String),
    /// A list or a tuple.
    List(Vec<Item>),
    /// A list of so many numbers, or an empty one.
    Numbers(usize),
    Dict(Vec<(Item, Item)>),
}

/// A pickle that was read.
#[derive(Debug, Default)]
pub(super) struct Pickle {
    nodes: Vec<Node>,
    stack: Vec<Item>,
    memo: HashMap<u32, Item>,
    /// How much it has: instructions, and bytes of texts.
    size: u64,
    /// How much JSON was made of it: values, and bytes of texts.
    made: Cell<u64>,
}

/// How deep a value may be nested to become JSON.
const DEEPEST: usize = 16;

/// How much JSON may be made of a pickle: so much, and so many times what it has itself. A few bytes can name one value again and
/// again, in values that are named again and again.
const MOST: u64 = 10_000_000;
const TIMES: u64 = 8;

type Outcome<T> = Result<T, String>;

impl Pickle {
    /// Reads a pickle of protocol 2, which torch.save writes, or of an older binary one. Returns its value, too.
    pub(super) fn read(from: &mut impl BufRead) -> Outcome<(Self, Item)> {
        let mut pickle = Self::default();
        while pickle.step(from)? {
            pickle.size += 1;
        }
        let value = pickle.pop()?;
        Ok((pickle, value))
    }

    /// Returns the value of a key of a dictionary.
    pub(super) fn get(&self, item: Item, key: &str) -> Option<Item> {
        self.entries(item)?.find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Returns a dictionary's entries whose keys are texts. Of two with one key, the last counts and comes first.
    pub(super) fn entries(&self, item: Item) -> Option<impl Iterator<Item = (&str, Item)>> {
        let Item::Node(place) = item else { return None };
        let Node::Dict(entries) = &self.nodes[place] else { return None };
        Some(entries.iter().rev().filter_map(|(key, value)| Some((self.text(*key)?, *value))))
    }

    /// Returns the items of a list.
    pub(super) fn items(&self, item: Item) -> Option<&[Item]> {
        let Item::Node(place) = item else { return None };
        match &self.nodes[place] {
            Node::List(items) => Some(items),
            Node::Numbers(0) => Some(&[]),
            _ => None,
        }
    }

    /// Returns the length of a list of numbers.
    pub(super) fn numbers(&self, item: Item) -> Option<usize> {
        let Item::Node(place) = item else { return None };
        if let Node::Numbers(count) = self.nodes[place] { Some(count) } else { None }
    }

    /// Returns a value as JSON; none if it is opaque, a list of numbers, or nested too deeply. Fails if all values together are too
    /// many.
    pub(super) fn json(&self, item: Item) -> Outcome<Option<Value>> {
        self.json_at(item, 0)
    }

    fn json_at(&self, item: Item, depth: usize) -> Outcome<Option<Value>> {
        self.count(1 + self.text(item).map_or(0, str::len) as u64)?;
        let Item::Node(place) = item else {
            return Ok(match item {
                Item::None => Some(Value::Null),
                Item::Bool(yes) => Some(yes.into()),
                // Whole numbers stay whole: names are made of them.
                Item::Number(v) if v.fract() == 0.0 && v.abs() < 9e15 => Some((v as i64).into()),
                Item::Number(v) => Number::from_f64(v).map(Value::Number),
                _ => None,
            });
        };
        if depth == DEEPEST {
            return Ok(None);
        }
        Ok(match &self.nodes[place] {
            Node::Text(text) => Some(text.clone().into()),
            Node::List(items) => {
                items.iter().map(|item| self.json_at(*item, depth + 1)).collect::<Outcome<_>>()?
            }
            Node::Numbers(0) => Some(Value::Array(Vec::new())),
            Node::Numbers(_) => None,
            Node::Dict(_) => {
                let mut map = Map::new();
                for (key, value) in self.entries(item).into_iter().flatten() {
                    self.count(key.len() as u64)?;
                    if let Some(value) = self.json_at(value, depth + 1)? {
                        map.entry(key).or_insert(value);
                    }
                }
                Some(Value::Object(map))
            }
        })
    }

    /// Counts what is made into JSON, up to the limit.
    fn count(&self, more: u64) -> Outcome<()> {
        self.made.set(self.made.get() + more);
        if self.made.get() <= MOST + TIMES * self.size {
            return Ok(());
        }
        Err(format!(
            "its values name each other so often that they are more than {MOST}, and more than {TIMES} times what is in it"
        ))
    }

    fn text(&self, item: Item) -> Option<&str> {
        let Item::Node(place) = item else { return None };
        if let Node::Text(text) = &self.nodes[place] { Some(text) } else { None }
    }

    /// Reads an instruction and follows it (Lib/pickletools.py of CPython). Returns whether the pickle goes on.
    fn step(&mut self, from: &mut impl BufRead) -> Outcome<bool> {
        let [code] = bytes(from)?;
        match code {
            0x80 => _ = bytes::<1>(from)?,
            b'(' => self.stack.push(Item::Mark),
            b'N' => self.stack.push(Item::None),
            0x88 => self.stack.push(Item::Bool(true)),
            0x89 => self.stack.push(Item::Bool(false)),
            b'J' => self.stack.push(Item::Number(i32::from_le_bytes(bytes(from)?).into())),
            b'K' => self.stack.push(Item::Number(u8::from_le_bytes(bytes(from)?).into())),
            b'M' => self.stack.push(Item::Number(u16::from_le_bytes(bytes(from)?).into())),
            b'G' => self.stack.push(Item::Number(f64::from_be_bytes(bytes(from)?))),
            0x8a => self.long(from)?,
            b'X' => {
                let length = u32::from_le_bytes(bytes(from)?);
                let text = String::from_utf8(many(from, length.into())?).map_err(|_| "text is not UTF-8")?;
                self.size += u64::from(length);
                self.put(Node::Text(text));
            }
            b']' => self.put(Node::Numbers(0)),
            b'}' => self.put(Node::Dict(Vec::new())),
            b')' => self.put(Node::List(Vec::new())),
            b't' => {
                let items = self.pop_to_mark()?;
                self.put(Node::List(items));
            }
            0x85..=0x87 => {
                let start = self.stack.len().checked_sub((code - 0x84).into()).ok_or(SHORT)?;
                let items = self.stack.split_off(start);
                self.put(Node::List(items));
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(vec![item])?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.extend(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(&[key, value])?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set(&items)?;
            }
            b'.' => return Ok(false),
            code => self.other(code, from)?,
        }
        Ok(true)
    }

    /// Follows an instruction about what was read before, or about an object.
    fn other(&mut self, code: u8, from: &mut impl BufRead) -> Outcome<()> {
        match code {
            b'q' => {
                let [place] = bytes(from)?;
                self.memo.insert(place.into(), *self.stack.last().ok_or(SHORT)?);
            }
            b'r' => _ = self.memo.insert(u32::from_le_bytes(bytes(from)?), *self.stack.last().ok_or(SHORT)?),
            b'h' => {
                let [place] = bytes(from)?;
                self.recall(place.into())?;
            }
            b'j' => self.recall(u32::from_le_bytes(bytes(from)?))?,
            b'c' => {
                for _ in 0..2 {
                    from.skip_until(b'\n').map_err(|e| e.to_string())?;
                }
                self.stack.push(Item::Opaque);
            }
            // A call, an object, or a tensor: what it is made of is dropped.
            b'R' | 0x81 => {
                self.pop()?;
                self.pop()?;
                self.stack.push(Item::Opaque);
            }
            b'b' => _ = self.pop()?,
            b'Q' => {
                self.pop()?;
                self.stack.push(Item::Opaque);
            }
            code => return Err(format!("instruction {code:#04x} of a pickle is not supported")),
        }
        Ok(())
    }

    /// Reads a whole number of many bytes; the few that are larger than a float holds exactly lose digits.
    fn long(&mut self, from: &mut impl BufRead) -> Outcome<()> {
        let [length] = bytes(from)?;
        let digits = many(from, length.into())?;
        let negative = digits.last().is_some_and(|last| *last >= 0x80);
        let size = digits.iter().rev().fold(0.0, |sum, digit| 256.0 * sum + f64::from(*digit));
        let below = if negative { libm::exp2(8.0 * f64::from(length)) } else { 0.0 };
        self.stack.push(Item::Number(size - below));
        Ok(())
    }

    fn put(&mut self, node: Node) {
        self.nodes.push(node);
        self.stack.push(Item::Node(self.nodes.len() - 1));
    }

    fn pop(&mut self) -> Outcome<Item> {
        self.stack.pop().ok_or_else(|| SHORT.to_owned())
    }

    fn recall(&mut self, place: u32) -> Outcome<()> {
        self.stack.push(*self.memo.get(&place).ok_or("a pickle refers to a value that it does not have")?);
        Ok(())
    }

    fn pop_to_mark(&mut self) -> Outcome<Vec<Item>> {
        let mark = self.stack.iter().rposition(|item| matches!(item, Item::Mark)).ok_or(SHORT)?;
        let items = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(items)
    }

    /// Appends to the list on top of the stack.
    fn extend(&mut self, more: Vec<Item>) -> Outcome<()> {
        let Some(Item::Node(place)) = self.stack.last().copied() else {
            // Of an object that is opaque.
            return Ok(());
        };
        let are_numbers = more.iter().all(|item| matches!(item, Item::Number(_)));
        match &mut self.nodes[place] {
            Node::Numbers(count) if are_numbers => *count += more.len(),
            // Numbers among other things do not matter: only their places are kept.
            Node::Numbers(count) => {
                let mut items = vec![Item::Opaque; *count];
                items.extend(more);
                self.nodes[place] = Node::List(items);
            }
            Node::List(items) => items.extend(more),
            _ => return Err("a pickle appends to what is not a list".to_owned()),
        }
        Ok(())
    }

    /// Adds keys and values to the dictionary on top of the stack.
    fn set(&mut self, pairs: &[Item]) -> Outcome<()> {
        let Some(Item::Node(place)) = self.stack.last().copied() else { return Ok(()) };
        let Node::Dict(entries) = &mut self.nodes[place] else {
            return Err("a pickle adds a key to what is not a dictionary".to_owned());
        };
        entries.extend(pairs.as_chunks().0.iter().map(|[key, value]| (*key, *value)));
        Ok(())
    }
}

const SHORT: &str = "a pickle takes more from its stack than there is";

fn bytes<const N: usize>(from: &mut impl Read) -> Outcome<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// Reads so many bytes, and takes memory only as they come.
fn many(from: &mut impl Read, length: u64) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = from.take(length).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if read as u64 == length { Ok(bytes) } else { Err("the file is cut off".to_owned()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(pickle: &[u8]) -> Outcome<Option<Value>> {
        let (pickle, item) = Pickle::read(&mut &pickle[..])?;
        pickle.json(item)
    }

    /// Pickles of CPython 3.11's `pickle.dumps(…, 2)`.
    #[test]
    fn values_are_as_python_wrote_them() {
        // a = ["x"]; {"a": a, "b": a, "n": [1, -2.5, 300, 2**33, True, None], 7: 0}
        let shared = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02X\x01\x00\x00\x00xq\x03aX\x01\x00\x00\x00bq\x04h\x02X\x01\x00\x00\x00nq\x05]q\x06\
            (K\x01G\xc0\x04\x00\x00\x00\x00\x00\x00M,\x01\x8a\x05\x00\x00\x00\x00\x02\x88NeK\x07K\x00u.";
        let expected = json!({ "a": ["x"], "b": ["x"], "n": [1, -2.5, 300, 8_589_934_592_u64, true, null] });
        assert_eq!(told(shared), Ok(Some(expected)));
        // (-1, 2**63 as a long, "ä")
        let numbers = b"\x80\x02J\xff\xff\xff\xff\x8a\x01\xffX\x02\x00\x00\x00\xc3\xa4q\x00\x87q\x01.";
        assert_eq!(told(numbers), Ok(Some(json!([-1, -1, "ä"]))));
    }

    #[test]
    fn hostile_pickles_are_refused_and_call_nothing() {
        for (pickle, words) in [
            (&b"\x80\x02"[..], "failed to fill whole buffer"),
            (b"a.", "more from its stack"),
            (b"K\x01a.", "more from its stack"),
            (b"h\x05.", "refers to a value"),
            (b"X\xff\xff\xff\xffabc", "cut off"),
            (b"}K\x01a.", "not a list"),
            (b"]K\x01K\x02s.", "not a dictionary"),
            (b"\x95.", "0x95"),
        ] {
            let error = told(pickle).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
        // A call of os.system is an object of which nothing is known.
        assert_eq!(told(b"cos\nsystem\nX\x01\x00\x00\x00xq\x00\x85R."), Ok(None));
        // A list in itself, and lists in lists.
        assert_eq!(told(b"]q\x00h\x00a."), Ok(None));
        let deep = [vec![b']'; 100_000], vec![b'a'; 99_999], b".".to_vec()].concat();
        assert_eq!(told(&deep), Ok(None));
        // Thirteen tuples, each of ten times the one before; and a text that is named again and again.
        let level = |n: u8| [vec![b'('], [b'h', n].repeat(10), vec![b't', b'q', n + 1]].concat();
        let many = [b"Nq\x00".to_vec(), (0..13).flat_map(level).collect(), b".".to_vec()].concat();
        let text = [&b"X\x00\x00\x01\x00"[..], &vec![b'a'; 65_536], b"q\x00("].concat();
        let texts = [text, b"h\x00".repeat(100_000), b"t.".to_vec()].concat();
        for pickle in [many, texts] {
            let error = told(&pickle).expect_err("it is too much");
            assert!(error.contains("values name each other so often"), "{error}");
        }
    }
}
