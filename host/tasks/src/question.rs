//! Equality of questions: the same words, ignoring white space, case, template, system message and chat
//! format.

use sha2::{Digest as _, Sha256};

use crate::Message;

/// Key of a question, equal for equal questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u128);

impl Key {
    /// Returns the key of these exact parts.
    pub fn of(parts: &[&str]) -> Self {
        let mut hash = Sha256::new_with_prefix("question");
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().iter().take(16).fold(0, |bits, byte| (bits << 8) | u128::from(*byte)))
    }
}

/// Returns a text without differences that do not change a question. Runs of white space become one space,
/// and both ends are trimmed. Case is folded by letter: to upper, then to lower case, so that `ß` is `ss`.
pub fn folded(text: &str) -> String {
    if text.is_ascii() { folded_bytes(text) } else { folded_letters(text) }
}

/// Does this byte by byte, for ASCII, as most questions are. The iterators over what any letter becomes take longer.
fn folded_bytes(text: &str) -> String {
    let (mut folded, mut apart) = (String::with_capacity(text.len()), false);
    for byte in text.bytes() {
        if matches!(byte, b'\t'..=b'\r' | b' ') {
            apart = !folded.is_empty();
            continue;
        }
        if std::mem::take(&mut apart) {
            folded.push(' ');
        }
        folded.push(char::from(byte.to_ascii_lowercase()));
    }
    folded
}

fn folded_letters(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    let words = text.split(|c: char| c.is_whitespace() || is_blank(c)).filter(|word| !word.is_empty());
    for (i, word) in words.enumerate() {
        if i > 0 {
            folded.push(' ');
        }
        folded.extend(word.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase));
    }
    folded
}

/// Zero-width white space, which Unicode does not count as white space.
fn is_blank(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{2060}' | '\u{feff}')
}

/// Returns the text of messages, without system messages.
pub(crate) fn spoken(messages: &[Message]) -> String {
    let said = messages.iter().filter(|m| m.role != "system").map(|m| m.content.as_str());
    said.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_and_case_make_no_other_question() {
        assert_eq!(folded(" What\n is\u{a0}\u{3000}2 +\t2? \u{feff}"), "what is 2 + 2?");
        assert_eq!(folded("STRASSE ΣΊΣΥΦΟΣ"), folded("straße σίσυφος"));
        assert_eq!(folded(" \n"), "");
        assert_ne!(folded("12 + 3"), folded("1 2 + 3"));
        assert_ne!(Key::of(&["a", "b"]), Key::of(&["ab"]));
    }

    #[test]
    fn bytes_are_folded_as_letters_are() {
        // All pairs of ASCII characters, each between others and at an end.
        let all = '\0'..='\x7f';
        for (one, other) in all.clone().flat_map(|one| all.clone().map(move |other| (one, other))) {
            for text in [format!("{one}{other}"), format!("A{one}{other}b")] {
                assert_eq!(folded_bytes(&text), folded_letters(&text), "{text:?}");
            }
        }
    }

    #[test]
    fn a_system_says_nothing_of_the_question() {
        let say = |role: &str, content: &str| Message { role: role.to_owned(), content: content.to_owned() };
        let messages =
            [say("system", "Be brief."), say("user", "a"), say("assistant", "b"), say("user", "c")];
        assert_eq!(spoken(&messages), "a\nb\nc");
    }
}
