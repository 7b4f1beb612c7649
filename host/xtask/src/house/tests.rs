#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::{TABLE, check, lower, set};

/// A small repository: `host/big` has 2,000 lines, and two files that do not use each other.
fn tree() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let functions: String = (0..33).map(|i| function(&format!("f{i}"), 60)).collect();
    write(root.path(), "Cargo.toml", "[workspace]\nmembers = [\"host\", \"host/big\"]\n");
    write(root.path(), "host/Cargo.toml", "[package]\nname = \"program\"\n");
    write(root.path(), "host/src/main.rs", "fn main() {}\n");
    write(root.path(), "host/big/Cargo.toml", "[package]\nname = \"big\"\n");
    write(root.path(), "host/big/src/lib.rs", "pub mod above;\nmod below;\npub use below::Low;\n");
    let above = "use crate::below::Low;\n\npub struct High(pub Low);\n\npub fn shared() {}\n\nmod part;\n";
    write(root.path(), "host/big/src/above.rs", above);
    write(
        root.path(),
        "host/big/src/above/part.rs",
        "use super::shared;\n\npub fn f() {\n    shared();\n}\n",
    );
    write(root.path(), "host/big/src/below.rs", &format!("pub struct Low;\n{functions}"));
    std::fs::create_dir(root.path().join(".ci")).unwrap();
    set(root.path(), "as it is").unwrap();
    root
}

/// A function of that many lines.
fn function(name: &str, lines: usize) -> String {
    format!("fn {name}() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn append(root: &Path, path: &str, text: &str) {
    let before = std::fs::read_to_string(root.join(path)).unwrap();
    write(root, path, &format!("{before}{text}"));
}

/// What the check says of a tree that was changed.
fn refused(change: impl FnOnce(&Path)) -> String {
    let root = tree();
    check(root.path()).unwrap();
    change(root.path());
    check(root.path()).unwrap_err().what
}

#[test]
fn a_planted_circle_is_refused_with_the_names_that_close_it() {
    let what = refused(|root| append(root, "host/big/src/below.rs", "use super::above::High;\n"));
    let expected = "\
2 files import each other in a circle; expected none:
  host/big/src/above.rs uses Low of host/big/src/below.rs
  host/big/src/below.rs uses High of host/big/src/above.rs";
    assert_eq!(what, expected);
}

#[test]
fn a_circle_is_seen_however_a_path_is_written() {
    for planted in [
        "fn g(_: crate::above::High) {}",
        "use super::{self as top, above::*};",
        "use crate::above as other; fn g() -> other::High { todo!() }",
        "mod inner { use super::super::above; fn g() { above::shared(); } }",
        "macro_rules! g { () => { $crate::above::shared() } }",
    ] {
        let what = refused(|root| append(root, "host/big/src/below.rs", planted));
        assert!(what.starts_with("2 files import each other"), "{planted}: {what}");
    }
}

#[test]
fn tests_comments_and_a_parent_close_no_circle() {
    let root = tree();
    for harmless in [
        "/// As [`crate::above::High`].\nstruct Other;\n",
        "#[cfg(test)]\nmod tests {\n    use crate::above::High;\n}\n",
        "#[cfg(all(test, unix))]\nuse crate::above::High;\n",
    ] {
        append(root.path(), "host/big/src/below.rs", harmless);
    }
    // `above` and its `part` use each other already.
    append(root.path(), "host/big/src/above.rs", "fn g() { part::f(); }\n");
    check(root.path()).unwrap();
}

#[test]
fn one_per_cent_of_lines_is_refused_and_three_lines_are_not() {
    let root = tree();
    append(root.path(), "host/big/src/below.rs", "//\n//\n//\n");
    check(root.path()).unwrap();
    let what = refused(|root| append(root, "host/big/src/below.rs", &"//\n".repeat(20)));
    assert!(what.contains("lines in `host/big`: 2016; expected at most 1996, and 10 of room"), "{what}");
}

#[test]
fn a_function_of_61_lines_is_refused_and_one_of_60_is_not() {
    let root = tree();
    let place = "host/src/main.rs";
    append(root.path(), place, &function("long", 60));
    set(root.path(), "a function").unwrap();
    check(root.path()).unwrap();
    append(root.path(), place, &format!("mod inner {{ impl T {{ {} }} }}\n", function("long", 61)));
    let what = check(root.path()).unwrap_err().what;
    let expected = "functions of more than 60 lines in `host`: 1; expected at most 0\n  `long` in host/src/main.rs:62 has 61 lines";
    assert!(what.contains(expected), "{what}");
}

#[test]
fn words_crates_and_lines_of_the_manifest_are_counted() {
    let what = refused(|root| append(root, "host/src/main.rs", "// Whoever knows; nobody's.\n"));
    assert_eq!(what, r#""nobody", "somebody", "whoever" in `host/*`: 2; expected at most 0"#);
    let what = refused(|root| {
        write(root, "host/new/Cargo.toml", "[package]\n");
        write(root, "host/new/src/lib.rs", "//\n");
    });
    assert_eq!(what, "crates in `host/*`: 2; expected at most 1\nlines in `host/new`: 1; expected at most 0");
    let what = refused(|root| append(root, "Cargo.toml", &"#\n".repeat(11)));
    assert_eq!(what, "lines in `Cargo.toml`: 13; expected at most 2, and 10 of room");
}

#[test]
fn lowering_never_raises_and_a_raise_keeps_its_reason() {
    let root = tree();
    let path = root.path();
    append(path, "host/big/src/below.rs", "use super::above::High;\n");
    assert!(set(path, " \n").is_err());
    set(path, "a circle\nto open").unwrap();
    check(path).unwrap();
    let circle = "circle\thost/big/src/above.rs host/big/src/below.rs\t2\ta circle to open\n";
    assert!(std::fs::read_to_string(path.join(TABLE)).unwrap().contains(circle));

    // Smaller here, larger there.
    write(path, "host/big/src/below.rs", "pub struct Low;\n");
    append(path, "host/src/main.rs", &"//\n".repeat(100));
    lower(path).unwrap();
    let table = std::fs::read_to_string(path.join(TABLE)).unwrap();
    assert!(table.contains("lines\thost\t1\t") && table.contains("lines\thost/big\t16\t"), "{table}");
    assert!(!table.contains("\ncircle"), "{table}");
    assert!(check(path).unwrap_err().what.starts_with("lines in `host`: 101; expected at most 1"));

    set(path, "moved up").unwrap();
    let table = std::fs::read_to_string(path.join(TABLE)).unwrap();
    assert!(table.contains("lines\thost\t101\tmoved up\n"), "{table}");
    assert!(table.contains("functions\thost/big\t0\tas it is\n"), "{table}");
}

#[test]
fn a_part_of_an_allowed_circle_is_allowed_and_a_larger_one_is_not() {
    let root = tree();
    let path = root.path();
    write(path, "host/big/src/third.rs", "use crate::above::High;\n");
    append(path, "host/big/src/lib.rs", "mod third;\n");
    append(path, "host/big/src/below.rs", "use super::third::X;\n");
    set(path, "three files").unwrap();
    // `third` leaves the circle.
    write(path, "host/big/src/third.rs", "\n");
    append(path, "host/big/src/below.rs", "use super::above::High;\n");
    check(path).unwrap();
    lower(path).unwrap();
    check(path).unwrap();
    let circle = "circle\thost/big/src/above.rs host/big/src/below.rs\t2\tthree files\n";
    assert!(std::fs::read_to_string(path.join(TABLE)).unwrap().contains(circle));

    write(path, "host/big/src/third.rs", "use crate::above::High;\n");
    assert!(check(path).unwrap_err().what.starts_with("3 files import each other"));
}

#[test]
fn a_broken_table_is_named_with_its_line() {
    let root = tree();
    append(root.path(), TABLE, "lines host 3\n");
    let what = check(root.path()).unwrap_err().what;
    assert!(what.starts_with("`.ci/house.tsv` line ") && what.contains("four fields"), "{what}");
}
