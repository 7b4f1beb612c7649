//! Chat templates against transformers' renderings: `ALLOT_CHAT` names another folder of templates and
//! cases.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};

use allot_models::chat::{ChatTemplate, Date};
use serde_json::{Map, Value};

/// The day on which `record.py` renders.
const DATE: &str = "2026-11-25";

/// A recorded case: a template by its folder, its file or its source, and what transformers made of it.
fn agrees(folder: &Path, case: &Value) -> Result<(), String> {
    let special = || case["special"].as_object().unwrap().clone();
    let template = if let Some(name) = case["tokenizer"].as_str() {
        ChatTemplate::read(&folder.join(name))
    } else if let Some(name) = case["template"].as_str() {
        ChatTemplate::parse(std::fs::read_to_string(folder.join(name)).unwrap(), special(), name)
    } else {
        ChatTemplate::parse(case["source"].as_str().unwrap().to_owned(), special(), "here")
    };
    let text = template.and_then(|template| {
        template.set_date(DATE.parse().unwrap());
        template.render(case["messages"].as_array().unwrap(), case["kwargs"].as_object().unwrap())
    });
    match (text, case["rendered"].as_str()) {
        (Ok(text), Some(recorded)) if text == recorded => Ok(()),
        (Err(_), None) => Ok(()),
        // Where Python has a generator, minijinja has a list, and a list can be written as JSON.
        (Ok(_), None) if case["refused"].as_str().unwrap().contains("type generator") => Ok(()),
        (Ok(text), Some(recorded)) => Err(format!("{text:?}\n  recorded: {recorded:?}")),
        (Ok(text), None) => Err(format!("{text:?}\n  refused: {}", case["refused"])),
        (Err(error), Some(recorded)) => Err(format!("{}\n  recorded: {recorded:?}", error.what)),
    }
}

fn cases(file: &Path) -> Vec<Value> {
    std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_recorded_conversation_renders_as_in_transformers() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/chat");
    let folder = std::env::var_os("ALLOT_CHAT").map_or(default, PathBuf::from);
    let cases = cases(&folder.join("cases.jsonl"));
    let mut differ = Vec::new();
    for case in &cases {
        if let Err(why) = agrees(&folder, case) {
            let name = case["tokenizer"].as_str().or(case["template"].as_str()).unwrap();
            differ.push(format!("{name}, {}, {}: {why}", case["case"], case["kwargs"]));
        }
    }
    assert!(cases.len() >= 42, "only {} cases", cases.len());
    let shown = differ.join("\n");
    assert!(differ.is_empty(), "{} of {} cases differ:\n{shown}", differ.len(), cases.len());
}

#[test]
fn every_construct_renders_as_in_transformers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/chat");
    let cases = cases(&folder.join("constructs.jsonl"));
    let differ = |case: &Value| {
        agrees(&folder, case).err().map(|why| format!("{}, {}: {why}", case["case"], case["source"]))
    };
    let differ: Vec<String> = cases.iter().filter_map(differ).collect();
    assert!(cases.len() >= 120, "only {} cases", cases.len());
    assert!(
        differ.is_empty(),
        "{} of {} constructs differ:\n{}",
        differ.len(),
        cases.len(),
        differ.join("\n")
    );
}

#[test]
fn a_date_is_one_of_the_calendar() {
    for wrong in
        ["2026-02-29", "2026-13-01", "2026-00-10", "0000-01-01", "25.11.2026", "2026-1-1", "today", ""]
    {
        let said = wrong.parse::<Date>().unwrap_err();
        assert!(said.ends_with("is not a date; expected one such as `2026-11-25`"), "{said}");
    }
    for right in ["2024-02-29", "2000-12-31", "1970-01-01", "9999-12-31"] {
        assert_eq!(right.parse::<Date>().unwrap().to_string(), right);
    }
    // Python's, of days at which years and weeks begin and end.
    for (date, shown) in [
        ("2024-02-29", "Thu 060 08 09 4 2024-09"),
        ("2021-01-01", "Fri 001 00 00 5 2020-53"),
        ("2024-12-30", "Mon 365 52 53 1 2025-01"),
        ("2023-01-01", "Sun 001 01 00 0 2022-52"),
        ("2000-12-31", "Sun 366 53 52 0 2000-52"),
    ] {
        let date: Date = date.parse().unwrap();
        assert_eq!(date.format("%a %j %U %W %w %G-%V").unwrap(), shown, "{date}");
    }
    assert!(Date::today().to_string().as_str() >= "2026-01-01");
}

#[test]
fn a_template_writes_one_date() {
    let parse = |text: &str| ChatTemplate::parse(text.to_owned(), Map::new(), "mine.jinja").unwrap();
    let (date, day) = ("2026-11-05".parse().unwrap(), "{{ strftime_now('%-d %B %Y') }}");
    let dated = parse(day);
    dated.set_date(date);
    assert_eq!(dated.date(), None);
    assert_eq!(dated.render(&[], &Map::new()).unwrap(), "5 November 2026");
    assert_eq!(dated.date(), Some(date));

    let without = parse("{{ strftime_now is defined }}");
    without.set_date(date);
    assert_eq!((without.render(&[], &Map::new()).unwrap().as_str(), without.date()), ("True", None));

    let (before, today) = (Date::today(), parse("{{ strftime_now('%F') }}"));
    let text = today.render(&[], &Map::new()).unwrap();
    assert!([before, Date::today()].iter().any(|date| date.to_string() == text), "{text}");
    assert_eq!(today.date().unwrap().to_string(), text);

    for (code, why) in
        [("%d %Q", "has the unknown code `%Q`; expected one of %a"), ("%", "ends within a code")]
    {
        let wrong = parse(&format!("{{{{ strftime_now('{code}') }}}}"));
        let said = wrong.render(&[], &Map::new()).unwrap_err().what;
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn what_is_wrong_with_a_template_is_told() {
    let parse = |text: &str| ChatTemplate::parse(text.to_owned(), Map::new(), "mine.jinja");
    let broken = parse("{% for m in messages %}").map(|_| ()).unwrap_err().what;
    assert!(broken.starts_with("the chat template in `mine.jinja` is broken: syntax error"), "{broken}");

    let strict = parse("{{ raise_exception('roles must take turns') }}").unwrap();
    let refused = strict.render(&[], &Map::new()).unwrap_err().what;
    assert!(
        refused.contains("refuses these messages") && refused.contains("roles must take turns"),
        "{refused}"
    );

    let folder = tempfile::tempdir().unwrap();
    let read = || ChatTemplate::read(folder.path()).map(|_| ()).unwrap_err();
    assert!(read().what.ends_with("there is no such file or folder"), "{}", read().what);
    std::fs::write(folder.path().join("tokenizer_config.json"), "{}").unwrap();
    assert!(read().what.ends_with("has no chat template"), "{}", read().what);
    std::fs::write(folder.path().join("tokenizer_config.json"), "[]").unwrap();
    assert!(read().what.contains("is not a JSON object"), "{}", read().what);
}

#[test]
fn a_template_has_an_end() {
    let render = |text: &str| {
        let template = ChatTemplate::parse(text.to_owned(), Map::new(), "mine.jinja")?;
        template.render(&[], &Map::new())
    };
    // As many terms as a source has room for, with the stack that they take.
    let terms = render(&format!("{{{{ {}1 }}}}", "1+".repeat(65_000))).unwrap();
    assert_eq!(terms, "65001");
    let endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
    let raw = format!("{{% for i in range(99999) %}}{}{{% endfor %}}", "a".repeat(10_000));
    let captured = "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}\
                    {% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}";
    let calls = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    for (text, why) in [
        (endless, "ran out of fuel"),
        (&raw, "it makes more than"),
        (captured, "it makes more than"),
        (calls, "recursion limit"),
        // The library panics at this one.
        ("{% for x in 'ab' %}{{ loop.cycle() }}{% endfor %}", "it can't be rendered"),
        (&" ".repeat(200_000), "it has 200000 bytes"),
    ] {
        let said = render(text).unwrap_err().what;
        assert!(said.contains(why), "{why}: {said}");
    }
}

/// Each makes what has no end, or a great deal, by one way that Jinja or Python has.
const GREEDY: &[&str] = &[
    // Text doubled in sixty statements, by each operator that joins.
    "DOUBLE x ~ x",
    "DOUBLE x + x",
    "DOUBLE x * 2",
    "DOUBLE [x, x]|join",
    "DOUBLE ''.join([x, x])",
    "DOUBLE x.join(['a', x])",
    "DOUBLE x|replace('a', 'aa')",
    "DOUBLE x.replace('a', 'aa')",
    "DOUBLE '%s%s'|format(x, x)",
    "DOUBLE '%s%s' % (x, x)",
    "DOUBLE '{}{}'.format(x, x)",
    "DOUBLE ([x, x]|string)",
    "DOUBLE ([x, x]|tojson)",
    "DOUBLE (x ~ x)|upper|lower",
    // Lists, and values in values.
    "LIST x + x",
    "LIST x * 2",
    "LIST (x|list) + (x|list)",
    "LIST [x, x]",
    "LIST {'a': x, 'b': x}",
    "LIST (x, x)",
    // At once.
    "{{ 'a' * 99999999999 }}",
    "{{ [1] * 99999999999 }}",
    "{{ (1,) * 99999999999 }}",
    "{{ 'a' * 99999999 ~ 'a' * 99999999 ~ 'a' * 99999999 }}",
    "{{ '%99999999999s' % 'a' }}",
    "{{ '%*d' % (99999999999, 1) }}",
    "{{ '%.99999999999f' % 1.5 }}",
    "{{ '{:99999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 99999999999) }}",
    "{{ 'a'.center(99999999999) }}",
    "{{ 'a'.zfill(99999999999) }}",
    "{{ 'a\\nb'|indent(99999999999) }}",
    "{{ [1]|tojson(indent=99999999999) }}",
    "{{ [1]|batch(99999999999, 'a') }}",
    "{{ [1]|slice(99999999999, 'a')|list }}",
    // In many parts.
    "{% set x = 'a' * 1000000 %}{{ ([x] * 99999)|map('upper')|list|length }}",
    "{% set x = 'a' * 1000000 %}{{ ([x] * 99999)|map('list')|list|length }}",
    "{% set x = 'a' * 1000000 %}{{ ([x] * 99999)|join }}",
    "{% set x = 'a' * 1000000 %}{{ x|replace('a', x) }}",
    "{% set x = 'a' * 1000000 %}{{ x.replace('', x) }}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = ns.x + ['a' * 99999] %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set y %}RAW{% endset %}{% set ns.x = ns.x + [y] %}{% endfor %}",
    "{% macro m(x, n) %}{{ x }}{% if n %}{{ m(x ~ x, n - 1) }}{% endif %}{% endmacro %}{{ m('aaaaaaaa', 24) }}",
    "{% for i in range(99999) %}{{ range(99999)|list|length }}{% endfor %}",
    "{% for i in range(99999) %}{% set x = range(99999)|join(',') %}{% endfor %}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set y %}{% filter upper %}{{ ns.x }}{{ ns.x }}{% endfilter %}{% endset %}{% set ns.x = y %}{% endfor %}",
    // By texts that are made of lists in passing.
    "PASSING {{ x|upper }}",
    "PASSING {{ x|trim|length }}",
    "PASSING {{ x|split('b') }}",
    "PASSING {{ x in 'abc' }}",
    "PASSING {{ 'a' < x in 'abc' }}",
    "PASSING {{ x is in('abc') }}",
    "PASSING {{ x is startingwith('a') }}",
    "PASSING {{ 'abc' is endingwith(x) }}",
    "PASSING {{ raise_exception(x) }}",
    "PASSING {{ x|e }}",
    "PASSING {{ 'a'|replace('a', x) }}",
    "PASSING {{ [1, 2]|join(x) }}",
    "PASSING {{ '%r'|format(x) }}",
    "PASSING {% autoescape true %}{{ x }}{% endautoescape %}",
    // So deep that to show, to compare or to drop it takes more than a stack.
    "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = ns.x|batch(1)|list %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = namespace(a=ns.x) %}{% endfor %}",
    "{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns }}",
    "{% set ns = namespace(x=1) %}{% set ns.x = [ns] %}{{ ns }}",
    "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% for y in [ns.x] %}{% set ns.x = loop %}{% endfor %}{% endfor %}",
];

fn source(greedy: &str) -> String {
    let sixty = |first: &str, more: &str| {
        format!("{{% set x = {first} %}}{}{{{{ x|length }}}}", format!("{{% set x = {more} %}}").repeat(60))
    };
    match (greedy.strip_prefix("DOUBLE "), greedy.strip_prefix("LIST ")) {
        (Some(more), _) => sixty("'aaaaaaaa'", more),
        (_, Some(more)) => sixty("[1]", more),
        _ if greedy.starts_with("PASSING ") => {
            format!("{{% set x = ['a' * 1000000] * 99999 %}}{}", &greedy["PASSING ".len()..])
        }
        _ => greedy.replace("RAW", &"a".repeat(99_999)),
    }
}

/// The most memory that this process has had, in bytes.
#[cfg(target_os = "linux")]
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
#[cfg(target_os = "linux")]
fn a_template_makes_no_more_than_its_bound() {
    const MOST: usize = 512 << 20;
    let (mut bounded, mut ended) = (0, 0);
    for greedy in GREEDY {
        let template = ChatTemplate::parse(source(greedy), Map::new(), "mine.jinja").unwrap();
        match template.render(&[], &Map::new()) {
            Err(error) => {
                let known = [
                    "it makes more than",
                    "nested more than",
                    "a namespace cannot",
                    "`loop` cannot",
                    "ran out of fuel",
                    "recursion limit",
                ];
                let why = error.what;
                assert!(known.iter().any(|known| why.contains(known)), "{greedy}: {why}");
                bounded += 1;
            }
            // What is shared, or lazy, may be small after all.
            Ok(text) => {
                assert!(text.len() < 100, "{greedy}: {} bytes", text.len());
                ended += 1;
            }
        }
        assert!(peak() < MOST, "{greedy}: {} MiB", peak() >> 20);
    }
    assert!(bounded > 50, "{bounded} were bounded, {ended} ended");
}
