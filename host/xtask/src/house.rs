//! `cargo xtask house`: holds the size and the structure of the code against the numbers in `.ci/house.tsv`.
//!
//! Every number may fall, and none may rise without a reason, which is written beside it. Lines have some room, so that a fix
//! of three lines is not a raise: half a per cent, at least ten lines.

mod imports;
mod sources;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use allot_base::{Error, Result};

use self::imports::Circle;
use self::sources::{FUNCTION, Long, Source};
use crate::files::write;

/// Where the numbers are.
const TABLE: &str = ".ci/house.tsv";

/// The table's first lines.
const HEAD: &str = "\
# What `cargo xtask house` holds the code against. `--lower` writes what has become smaller; a raise needs a reason:
# `cargo xtask house --set REASON`. `lines` are of Rust by crate, with all that the crate's folder has and no other crate;
# `functions` are those of more than 60 lines; a `circle` is files that import each other, and how many they are.
# what	where	at most	reason of the last raise
";

/// Words that name nothing.
const WORDS: [&str; 3] = ["nobody", "somebody", "whoever"];

/// All crates of the host together, and all Rust of the repository.
const TOGETHER: [(&str, &str); 2] = [("host/*", "host"), ("*", "")];

/// Numbers by what is counted and where.
type Numbers = BTreeMap<(String, String), usize>;

/// What the code has.
struct House {
    numbers: Numbers,
    /// Functions that are too long, by crate.
    long: BTreeMap<String, Vec<String>>,
    circles: Vec<Circle>,
}

/// One allowed number.
struct Allowed {
    number: usize,
    reason: String,
}

type Table = BTreeMap<(String, String), Allowed>;

/// Checks that nothing has grown.
///
/// # Errors
///
/// A number is above the one in the table, or there is a circle that the table does not have.
pub fn check(root: &Path) -> Result<()> {
    let (house, table) = (House::measure(root)?, read(root)?);
    let grown: Vec<String> = house.grown(&table);
    if !grown.is_empty() {
        return Err(Error::new(grown.join("\n")).hint(
            "Make it smaller, split the function, or move what both files need into one below them. If the growth is decided, \
             run `cargo xtask house --set REASON`, which writes the reason into the table.",
        ));
    }
    let lower = house.lowered(&table).len();
    println!("{}", house.summary());
    if lower > 0 {
        println!("{lower} numbers in {TABLE} can be lowered: run `cargo xtask house --lower`");
    }
    Ok(())
}

/// Lowers the numbers of what has become smaller, and drops those of what is gone.
///
/// # Errors
///
/// The code or the table cannot be read, or the table cannot be written.
pub fn lower(root: &Path) -> Result<()> {
    let (house, mut table) = (House::measure(root)?, read(root)?);
    // What is left of a circle that the table has.
    let smaller = house.circles.iter().filter_map(|circle| {
        let reason = circle.allowed(&table)?.reason.clone();
        Some((circle.key(), Allowed { number: circle.files.len(), reason }))
    });
    let smaller: Table = smaller.collect();
    for key in house.lowered(&table) {
        match (house.numbers.get(&key), table.get_mut(&key)) {
            (Some(number), Some(allowed)) => allowed.number = *number,
            _ => drop(table.remove(&key)),
        }
    }
    table.extend(smaller);
    save(root, &table)
}

/// Writes the table anew from the code. Numbers that rise, or are new, get the reason.
///
/// # Errors
///
/// There is no reason; the code or the table cannot be read, or the table cannot be written.
pub fn set(root: &Path, reason: &str) -> Result<()> {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    if reason.is_empty() {
        return Err(Error::new("`--set` needs a reason for the numbers that rise"));
    }
    let (house, mut before) = (House::measure(root)?, read(root)?);
    let allow = |(key, number): (&(String, String), &usize)| {
        let old = before.remove(key);
        let reason = match old {
            Some(old) if old.number >= *number => old.reason,
            _ => reason.clone(),
        };
        (key.clone(), Allowed { number: *number, reason })
    };
    let table = house.numbers.iter().map(allow).collect();
    save(root, &table)
}

impl House {
    fn measure(root: &Path) -> Result<Self> {
        let crates = sources::read(root)?;
        let mut house = Self { numbers: Numbers::new(), long: BTreeMap::new(), circles: Vec::new() };
        for (name, sources) in &crates {
            let lines = sources.iter().map(Source::lines).sum();
            let long: Vec<String> = sources
                .iter()
                .flat_map(|source| source.long().into_iter().map(|long| shown(source, &long)))
                .collect();
            house.add("lines", name, lines);
            house.add("functions", name, long.len());
            house.long.insert(name.clone(), long);
            house.circles.extend(imports::circles(sources));
            if name.starts_with("host") {
                house.add("words", "host/*", sources.iter().map(|source| source.count(&WORDS)).sum());
                house.add("crates", "host/*", usize::from(name != "host"));
            }
            for (place, _) in TOGETHER.iter().filter(|(_, begin)| name.starts_with(begin)) {
                house.add("lines", place, lines);
                house.add("functions", place, house.long[name].len());
            }
        }
        house.numbers.extend(house.circles.iter().map(|circle| (circle.key(), circle.files.len())));
        let manifest = root.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).map_err(|e| Error::file("read", &manifest, &e))?;
        house.add("lines", "Cargo.toml", text.lines().count());
        Ok(house)
    }

    fn add(&mut self, what: &str, place: &str, number: usize) {
        *self.numbers.entry((what.to_owned(), place.to_owned())).or_default() += number;
    }

    /// What is above its number, a sentence each.
    fn grown(&self, table: &Table) -> Vec<String> {
        let mut all = Vec::new();
        for ((what, place), found) in self.numbers.iter().filter(|((what, _), _)| what != "circle") {
            let allowed = table.get(&(what.clone(), place.clone())).map_or(0, |allowed| allowed.number);
            let room = if what == "lines" && allowed > 0 { (allowed / 200).max(10) } else { 0 };
            if *found <= allowed + room {
                continue;
            }
            let counted = match what.as_str() {
                "functions" => format!("functions of more than {FUNCTION} lines"),
                "words" => format!("\"{}\"", WORDS.join("\", \"")),
                what => what.to_owned(),
            };
            let mut sentence = format!("{counted} in `{place}`: {found}; expected at most {allowed}");
            if room > 0 {
                let _ = write!(sentence, ", and {room} of room");
            }
            let long = self.long.get(place).filter(|_| what == "functions");
            sentence.extend(long.into_iter().flatten().map(|long| format!("\n  {long}")));
            all.push(sentence);
        }
        let circles = self.circles.iter().filter(|circle| circle.allowed(table).is_none()).map(|circle| {
            let arrow = |(from, to, names): &(String, String, Vec<String>)| {
                format!("\n  {from} uses {} of {to}", names.join(", "))
            };
            let arrows: String = circle.arrows.iter().map(arrow).collect();
            format!("{} files import each other in a circle; expected none:{arrows}", circle.files.len())
        });
        all.extend(circles);
        all
    }

    /// The keys of numbers that are too high, or of what is gone.
    fn lowered(&self, table: &Table) -> Vec<(String, String)> {
        let is_less =
            |key: &&(String, String)| self.numbers.get(*key).is_none_or(|found| *found < table[*key].number);
        table.keys().filter(is_less).cloned().collect()
    }

    fn summary(&self) -> String {
        let number = |what: &str, place: &str| {
            self.numbers.get(&(what.into(), place.into())).copied().unwrap_or_default()
        };
        format!(
            "host: {} lines in {} crates, {} functions of more than {FUNCTION} lines; everywhere: {} lines, {} such functions, \
             {} circles of imports",
            number("lines", "host/*"),
            number("crates", "host/*"),
            number("functions", "host/*"),
            number("lines", "*"),
            number("functions", "*"),
            self.circles.len()
        )
    }
}

impl Circle {
    /// Its place in the table.
    fn key(&self) -> (String, String) {
        ("circle".to_owned(), self.files.join(" "))
    }

    /// The circle of the table that has all of its files.
    fn allowed<'a>(&self, table: &'a Table) -> Option<&'a Allowed> {
        let has_all = |files: &str| self.files.iter().all(|file| files.split(' ').any(|other| other == file));
        table.iter().find(|((what, files), _)| what == "circle" && has_all(files)).map(|(_, allowed)| allowed)
    }
}

fn shown(source: &Source, long: &Long) -> String {
    format!("`{}` in {}:{} has {} lines", long.name, source.path.display(), long.line, long.lines)
}

/// Reads the table: a line is what is counted, where, the number, and the reason of its last raise.
fn read(root: &Path) -> Result<Table> {
    let path = root.join(TABLE);
    let text = match std::fs::read_to_string(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Table::new()),
        text => text.map_err(|e| Error::file("read", &path, &e))?,
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    let allowed = lines.map(|(number, line)| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [what, place, most, reason] = fields[..] else { return Err(number) };
        let allowed = Allowed { number: most.parse().map_err(|_| number)?, reason: reason.to_owned() };
        Ok(((what.to_owned(), place.to_owned()), allowed))
    });
    allowed.collect::<std::result::Result<_, usize>>().map_err(|number| {
        let what = format!(
            "`{TABLE}` line {} must have four fields with tabs between, a number the third",
            number + 1
        );
        Error::new(what)
            .hint("After a merge, take either side's table, and run `cargo xtask house --set REASON`.")
    })
}

fn save(root: &Path, table: &Table) -> Result<()> {
    let mut text = HEAD.to_owned();
    for ((what, place), Allowed { number, reason }) in table {
        let _ = writeln!(text, "{what}\t{place}\t{number}\t{reason}");
    }
    write(&root.join(TABLE), text)
}

#[cfg(test)]
mod tests;
