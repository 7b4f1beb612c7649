//! Files inside the program, compressed. Build scripts [pack](Files::pack) them; the program [unpacks](Packed) them when it is
//! first asked for one of them.
//!
//! Files of a kind are compressed as one, since they have much in common: 28 components take a tenth of their size, and two fifths
//! if each is deflated by itself.
//!
//! What is packed begins with a line for each file, `BYTES NAME`, and an empty line; the files follow as one frame of zstd.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, Result, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Of zstd. Its window has 8 MB, and so all files; at level 22 components would have 0.1 % less.
const LEVEL: i32 = 19;

/// Files to pack, by the names that they get, with `/` between folders.
#[derive(Debug, Default)]
pub struct Files(BTreeMap<String, PathBuf>);

impl Files {
    /// Adds a file.
    pub fn add(&mut self, name: &str, path: &Path) {
        self.0.insert(name.to_owned(), path.to_owned());
    }

    /// Adds all files in a folder and its folders, with names that begin with `name`. What an interpreter left there is left out.
    ///
    /// # Errors
    ///
    /// A folder cannot be read, or a name is no text of one line.
    pub fn add_folder(&mut self, name: &str, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder).map_err(|e| of(folder, e))? {
            let path = entry?.path();
            let called =
                path.file_name().and_then(|called| called.to_str()).filter(|called| !called.contains('\n'));
            let called = called.ok_or_else(|| of(&path, Error::other("its name is no text of one line")))?;
            if called == "__pycache__" || called == ".pytest_cache" {
                continue;
            }
            let name = if name.is_empty() { called.to_owned() } else { format!("{name}/{called}") };
            if path.is_dir() { self.add_folder(&name, &path)? } else { self.add(&name, &path) }
        }
        Ok(())
    }

    /// Writes all of them into one file, for [`Packed`]. The same files give the same bytes.
    ///
    /// # Errors
    ///
    /// There is none, or one cannot be read or written.
    pub fn pack(&self, to: &Path) -> Result<()> {
        if self.0.is_empty() {
            return Err(of(to, Error::other("there is nothing to pack")));
        }
        let (mut index, mut all) = (Vec::new(), Vec::new());
        for (name, path) in &self.0 {
            let bytes = fs::read(path).map_err(|e| of(path, e))?;
            writeln!(index, "{} {name}", bytes.len())?;
            all.extend(bytes);
        }
        fs::write(to, [&index[..], b"\n", &zstd::bulk::compress(&all, LEVEL)?].concat())
    }
}

/// In a build script: packs all files in a folder as `$OUT_DIR/NAME`, and again when the folder changes.
///
/// # Errors
///
/// As for [`Files::add_folder`] and [`Files::pack`].
#[expect(clippy::print_stdout, reason = "it is how a build script speaks to cargo")]
pub fn pack_folder(folder: &str, name: &str) -> Result<()> {
    println!("cargo::rerun-if-changed={folder}");
    let mut files = Files::default();
    files.add_folder("", Path::new(folder))?;
    let out = std::env::var_os("OUT_DIR")
        .ok_or_else(|| Error::other("cargo sets OUT_DIR for a build script alone"))?;
    files.pack(&Path::new(&out).join(name))
}

/// An error about a file or folder, with its path.
fn of(path: &Path, error: Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// What [`Files::pack`] wrote, as a static of the program.
pub struct Packed {
    bytes: &'static [u8],
    index: OnceLock<Index>,
    plain: OnceLock<Vec<u8>>,
}

struct Index {
    /// Where each file is in what is unpacked.
    places: BTreeMap<&'static str, Range<usize>>,
    /// The size of all of them.
    len: usize,
    frame: &'static [u8],
}

impl Index {
    fn unpack(&self) -> Option<Vec<u8>> {
        let plain = zstd::bulk::decompress(self.frame, self.len).ok()?;
        (plain.len() == self.len).then_some(plain)
    }
}

impl Packed {
    /// Returns what was packed as these bytes.
    pub const fn new(bytes: &'static [u8]) -> Self {
        Self { bytes, index: OnceLock::new(), plain: OnceLock::new() }
    }

    /// Returns the names of all files, sorted.
    pub fn names(&'static self) -> impl Iterator<Item = &'static str> {
        self.index().places.keys().copied()
    }

    /// Returns a file.
    pub fn file(&'static self, name: &str) -> Option<&'static [u8]> {
        let index = self.index();
        let place = index.places.get(name)?.clone();
        let plain = self.plain.get_or_init(|| index.unpack().expect("a build script compressed it"));
        Some(&plain[place])
    }

    /// Returns a file that is text.
    pub fn text(&'static self, name: &str) -> Option<&'static str> {
        str::from_utf8(self.file(name)?).ok()
    }

    /// Returns the size of a file, in bytes, without unpacking it.
    pub fn size(&'static self, name: &str) -> Option<usize> {
        self.index().places.get(name).map(Range::len)
    }

    /// Returns the files in a folder and its folders, by their names in it.
    pub fn folder(&'static self, folder: &str) -> impl Iterator<Item = (&'static str, &'static [u8])> {
        let inside = move |name: &'static str| name.strip_prefix(folder)?.strip_prefix('/');
        self.names().filter_map(move |name| Some((inside(name)?, self.file(name)?)))
    }

    fn index(&'static self) -> &'static Index {
        self.index.get_or_init(|| read(self.bytes).expect("a build script wrote this form"))
    }
}

fn read(packed: &'static [u8]) -> Option<Index> {
    let end = packed.windows(2).position(|two| two == b"\n\n")?;
    let (index, mut len) = (str::from_utf8(&packed[..end]).ok()?, 0);
    let place = |line: &'static str| {
        let (bytes, name) = line.split_once(' ')?;
        let from = len;
        len += bytes.parse::<usize>().ok()?;
        Some((name, from..len))
    };
    let places = index.lines().map(place).collect::<Option<_>>()?;
    Some(Index { places, len, frame: &packed[end + 2..] })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What these files come to, packed.
    fn packed(files: &[(&str, &[u8])]) -> &'static Packed {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        for (name, bytes) in files {
            let path = from.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
            fs::write(path, bytes).expect("it is written");
        }
        let mut all = Files::default();
        all.add_folder("", &from).expect("they are read");
        all.pack(&to).expect("they are packed");
        let bytes = fs::read(&to).expect("it was written");
        Box::leak(Box::new(Packed::new(bytes.leak())))
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        let long = "again and again, ".repeat(1000);
        // Bytes that do not compress, twice.
        let hash = |last: u32| last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mixed: Vec<u8> = std::iter::successors(Some(7), |last| Some(hash(*last)))
            .map(|x| (x >> 24) as u8)
            .take(600)
            .collect();
        let packed = packed(&[
            ("b.txt", long.as_bytes()),
            ("a/two words", b"\n\n1 2 x"),
            ("a/deep/empty", b""),
            ("ab/c", b"\xff\0"),
            ("mixed", &mixed),
            ("mixed too", &mixed),
            ("a/__pycache__/old", b"of an interpreter"),
        ]);
        let names: Vec<_> = packed.names().collect();
        assert_eq!(names, ["a/deep/empty", "a/two words", "ab/c", "b.txt", "mixed", "mixed too"]);
        assert_eq!(packed.text("b.txt"), Some(&*long));
        assert_eq!(packed.size("b.txt"), Some(17_000));
        assert!(packed.bytes.len() < 1000, "{} bytes", packed.bytes.len());
        let folder: Vec<_> = packed.folder("a").collect();
        assert_eq!(folder, [("deep/empty", &b""[..]), ("two words", b"\n\n1 2 x")]);
        assert_eq!((packed.file("ab/c"), packed.text("ab/c")), (Some(&b"\xff\0"[..]), None));
        assert_eq!((packed.file("a"), packed.file("c"), packed.size("c")), (None, None, None));
    }

    #[test]
    fn what_can_not_be_packed_is_told_with_its_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let (to, mut files) = (folder.path().join("to"), Files::default());
        let told = |done: Result<()>| done.expect_err("it can't be packed").to_string();
        assert!(told(files.pack(&to)).ends_with("to: there is nothing to pack"));
        files.add("a", &folder.path().join("gone"));
        assert!(told(files.pack(&to)).contains("gone: "));
        fs::write(folder.path().join("two\nlines"), "").expect("it is written");
        let said = told(files.add_folder("", folder.path()));
        assert!(said.ends_with("its name is no text of one line"), "{said}");
    }
    #[test]
    fn what_was_cut_off_is_no_packed_file() {
        let whole: &'static [u8] = packed(&[("a", b"one"), ("b", b"two")]).bytes;
        let is_whole = |bytes: &'static [u8]| read(bytes).is_some_and(|index| index.unpack().is_some());
        assert!(is_whole(whole));
        let cut = (0..whole.len()).find(|end| is_whole(&whole[..*end]));
        assert_eq!(cut, None);
    }
}
