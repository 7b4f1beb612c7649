//! Chat templates that are changed in their own terms: tags that go, come twice or elsewhere, other words in them, and work that
//! nobody would ask a template for.

use serde_json::{Value, json};

use crate::Chance;

/// Work without end, texts without end, depths without end, and what has no value.
const HOSTILE: [&str; 40] = [
    "{% for i in range(1000000000) %}x{% endfor %}",
    "{% for i in range(9999) %}{% for j in range(9999) %}{{ i * j }}{% endfor %}{% endfor %}",
    "{{ range(0, 9223372036854775807) | list }}",
    "{{ 'a' * 1000000000 }}",
    "{{ messages * 99999999 }}",
    "{{ 'a' * -1 }}{{ [1] * -9223372036854775808 }}",
    "{% macro m(x) %}{{ m(x) }}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{{ 'x'.replace('', 'yy').replace('', 'yy').replace('', 'y' * 10000).replace('', 'y' * 10000) }}",
    "{{ messages | tojson(indent=999999999) }}",
    "{{ messages | tojson(indent=-1) }}{{ none | tojson }}{{ (1 / 0) | tojson }}",
    "{{ 'a' | center(999999999) }}{{ 'a'.ljust(999999999) }}{{ 'a'.zfill(999999999) }}",
    "{{ '%999999999d' % 1 }}{{ '%s %s' % 'a' }}{{ '{:999999999}'.format(1) }}",
    "{{ 9223372036854775807 + 1 }}{{ -9223372036854775808 // -1 }}{{ 1 // 0 }}{{ 1 % 0 }}",
    "{{ 10 ** 1000 }}{{ 2 ** -1 }}{{ 0 ** 0 }}{{ 1e308 * 10 }}",
    "{{ messages[::0] }}",
    "{{ messages[9223372036854775807] }}{{ messages[-9223372036854775808:] }}{{ 'ab'[5:-9:-1] }}",
    "{{ messages[0][messages[0]] }}{{ messages.x.y.z }}",
    "{% for x in 'abc' recursive %}{{ loop('abc') }}{% endfor %}",
    "{% for x in messages %}{{ loop.cycle() }}{{ loop.previtem.previtem }}{% endfor %}",
    "{% for x in none %}{% endfor %}{% for a, b in messages %}{{ a }}{% endfor %}",
    "{% include 'x' %}",
    "{% extends 'x' %}",
    "{% import 'x' as y %}{{ y.z() }}",
    "{% block a %}{% block a %}{% endblock %}{% endblock %}{{ self.a() }}",
    "{{ raise_exception(messages) }}",
    "{{ raise_exception('no\u{202e}\u{1b}[31m' * 9999) }}",
    "{{ strftime_now('%Q %9999999d %') }}{{ strftime_now(1) }}",
    "{{ namespace(**messages) }}{{ dict(messages) }}{{ [].append(1) }}",
    "{{ messages | sort | groupby('role') | batch(0) | list }}{{ messages | slice(0) | list }}",
    "{{ [1, 'a', none] | sort }}{{ [] | max }}{{ 'a' | first | last | length }}",
    "{{ lipsum(999999) }}{{ cycler() }}{{ joiner() }}{{ debug() }}",
    "{{ 'a'.split('') }}{{ ''.split() }}{{ 'a'.strip(1) }}{{ 'a'.encode() }}",
    "{{ 'a'.__class__.__mro__ }}{{ messages.__len__() }}",
    "{% generation %}{% generation %}{% endgeneration %}{% endgeneration %}{% generation %}",
    "{% if messages is x %}{% elif %}{% else %}{% else %}{% endif %}",
    "{% set a = b = c %}{% set messages = messages %}{% set loop = 1 %}{{ loop.index }}",
    "{# {{ {% #}{{ '{{' }}{% raw %}{{ {% endraw %}",
    "{%- -%}{{- -}}{{ }}{% %}",
];

/// Operators and brackets that may stand many times in a row.
const DEEP: [&str; 10] = ["(", "[", "-", "not ", "{", "{{", "{% if a %}", "1+", "a.", "a|b|"];

/// A template that is this one no more.
pub fn mangled(source: &str, chance: &mut Chance) -> String {
    let mut pieces = pieces(source);
    for _ in 0..*chance.of_these(&[1, 1, 1, 2, 5]) {
        let (at, other) = (chance.below(pieces.len()), chance.below(pieces.len()));
        match chance.below(10) {
            0 => _ = pieces.remove(at),
            1 => pieces.insert(at, pieces[other].clone()),
            2 => pieces.swap(at, other),
            3 | 4 => {
                // A word for another word of the template.
                let words: Vec<&str> = source.split_whitespace().collect();
                let own: Vec<&str> = pieces[at].split_whitespace().collect();
                if let (false, false) = (own.is_empty(), words.is_empty()) {
                    let (word, other) = (*chance.of_these(&own), *chance.of_these(&words));
                    pieces[at] = pieces[at].replacen(word, other, 1);
                }
            }
            5 => {
                let deep = chance.of_these(&DEEP).repeat(*chance.of_these(&[3, 99, 9_999]));
                pieces.insert(at, format!("{{{{ {deep} }}}}"));
            }
            _ => pieces.insert(at, (*chance.of_these(&HOSTILE)).to_owned()),
        }
        if pieces.is_empty() {
            pieces.push(String::new());
        }
    }
    pieces.concat()
}

/// A message as some data set may have it.
pub fn message(chance: &mut Chance) -> Value {
    let call =
        json!({"type": "function", "function": {"name": "f", "arguments": {"x": [1, null, {"y": "\u{0}"}]}}});
    chance
        .of_these(&[
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "tool", "content": [{"type": "text", "text": "4"}]}),
            json!({"role": "assistant", "content": "<think>\n</think>4", "reasoning_content": ""}),
            json!({"role": "", "content": "{{ messages }}"}),
            json!({"content": 4}),
            json!({}),
        ])
        .clone()
}

/// A template's tags, each with the text before it.
fn pieces(source: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut rest = source;
    while let Some(end) = rest.find(['}', '{']).and_then(|at| Some(at + rest[at..].find('}')? + 1)) {
        let end = if rest[end..].starts_with('}') { end + 1 } else { end };
        pieces.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    pieces.push(rest.to_owned());
    pieces
}
