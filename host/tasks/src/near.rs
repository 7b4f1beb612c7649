//! Questions that nearly equal another one, by the runs of words that both have.
//!
//! A training question is nearly a held-out one if at least half of the held-out question's words are in
//! runs of eight that both have. Tülu 3 uses the same two numbers to detect contaminated training data
//! (Lambert et al. 2024, section 3.2). A run in many held-out questions is part of a data set's template
//! rather than of a question, and does not count. The work is linear in the length of all texts.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Number of words in a run.
const RUN: usize = 8;
/// Base of the hashes, an odd number without a pattern: the prime of 64-bit FNV.
const BASE: u64 = 0x0100_0000_01b3;
/// A run in more held-out questions than this does not count.
const COMMON: usize = 16;

/// A training question that is nearly a held-out one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// Index of the training question.
    pub train: usize,
    /// Index of the held-out question that it shares most words with.
    pub held_out: usize,
}

/// Returns the training questions that are nearly held-out ones, each with the nearest.
pub fn near(train: &[&str], held_out: &[&str]) -> Vec<Near> {
    let known = Known::of(held_out);
    let nearest = |(at, text): (usize, &&str)| {
        known.nearest(text).map(|held_out| Near { train: at, held_out: held_out as usize })
    };
    train.iter().enumerate().filter_map(nearest).collect()
}

/// The runs of held-out questions.
struct Known {
    /// For each run its hash, a question that has it, and the index of its first word there, sorted.
    owned: Vec<(u64, u32, u32)>,
    /// Start of each counted run in `owned` and its number of entries, by hash.
    begins: HashMap<u64, (u32, u32), BuildHasherDefault<AsIs>>,
    /// Number of words of each question that are in counted runs.
    counts: Vec<u32>,
}

impl Known {
    fn of(texts: &[&str]) -> Self {
        let one = |(at, text): (u32, &&str)| (0..).zip(runs(text)).map(move |(word, run)| (run, at, word));
        let mut owned: Vec<(u64, u32, u32)> = (0..).zip(texts).flat_map(one).collect();
        owned.sort_unstable();
        let (mut begins, mut found, mut begin) = (HashMap::default(), Vec::new(), 0);
        for lines in owned.chunk_by(|a, b| a.0 == b.0) {
            if lines.chunk_by(|a, b| a.1 == b.1).count() <= COMMON {
                begins.insert(lines[0].0, (begin, lines.len() as u32));
                found.extend(lines.iter().map(|(_, at, word)| (*at, *word)));
            }
            begin += lines.len() as u32;
        }
        let mut counts = vec![0; texts.len()];
        for (at, words) in covered(found) {
            counts[at as usize] = words;
        }
        Self { owned, begins, counts }
    }

    /// Returns a question of which the text has half of the counted words; of several, that with most.
    fn nearest(&self, text: &str) -> Option<u32> {
        let known = runs(text).into_iter().filter_map(|run| self.begins.get(&run));
        let lines = known.flat_map(|(begin, n)| &self.owned[*begin as usize..(begin + n) as usize]);
        let shared = covered(lines.map(|(_, at, word)| (*at, *word)).collect());
        let enough = shared.into_iter().filter(|(at, words)| 2 * words >= self.counts[*at as usize]);
        enough.max_by_key(|(at, words)| (*words, std::cmp::Reverse(*at))).map(|(at, _)| at)
    }
}

/// Returns the number of words of each question in runs that begin at these (question, word) pairs.
fn covered(mut found: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    found.sort_unstable();
    found.dedup();
    let words = |begins: &[(u32, u32)]| {
        let apart = begins.windows(2).map(|two| (two[1].1 - two[0].1).min(RUN as u32));
        (begins[0].0, RUN as u32 + apart.sum::<u32>())
    };
    found.chunk_by(|a, b| a.0 == b.0).map(words).collect()
}

/// Returns the hashes of a text's runs of words, in order. Each word's hash is multiplied by a power of the
/// base, so that the hash of a run follows from that of the previous one.
fn runs(text: &str) -> Vec<u64> {
    let words = words(text);
    let oldest = BASE.wrapping_pow(RUN as u32);
    let mut hash = 0u64;
    let mut next = |i: usize| {
        hash = hash.wrapping_mul(BASE).wrapping_add(words[i]);
        if i >= RUN {
            hash = hash.wrapping_sub(words[i - RUN].wrapping_mul(oldest));
        }
        mixed(hash)
    };
    let all: Vec<u64> = (0..words.len()).map(&mut next).collect();
    all.into_iter().skip(RUN - 1).collect()
}

/// Returns the hashes of a text's words: sequences of letters and digits, ignoring case. In scripts without
/// spaces between words, each character is a word.
fn words(text: &str) -> Vec<u64> {
    let (mut words, mut word) = (Vec::new(), None);
    let mut next = |c: char| {
        let alone = matches!(c, '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..);
        if alone || !c.is_alphanumeric() {
            words.extend(word.take());
        }
        if alone {
            words.push(c.into());
        } else if c.is_alphanumeric() {
            word = Some((word.unwrap_or(0) ^ u64::from(c)).wrapping_mul(BASE));
        }
    };
    for c in text.chars() {
        // The iterator over what any letter becomes takes longer.
        if c.is_ascii() { next(c.to_ascii_lowercase()) } else { c.to_lowercase().for_each(&mut next) }
    }
    words.extend(word);
    for word in &mut words {
        *word = mixed(*word);
    }
    words
}

/// Mixes bits: the last steps of SplitMix64 (Steele et al. 2014).
fn mixed(bits: u64) -> u64 {
    let mut z = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Takes a number for its hash: runs are mixed already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |number, byte| (number << 8) | u64::from(*byte));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JANET: &str = "Janet's ducks lay 16 eggs per day. She eats three for breakfast every morning and bakes \
                         muffins for her friends every day with four. How much does she make at the market?";

    #[test]
    fn a_question_in_nearly_the_same_words_is_found() {
        let reworded = JANET.replace("four", "5").replace("Janet", "JANET").replace(". ", ".\n\n");
        let shared = "Every day she sells what is left at the market. How much does she make at the market?";
        let train = ["What is 2 + 2?", &reworded, shared, "", JANET];
        let held_out = ["Who was the first to climb the mountain that is called K2 in winter?", JANET];
        let found = near(&train, &held_out);
        assert_eq!(found, [Near { train: 1, held_out: 1 }, Near { train: 4, held_out: 1 }]);
        assert_eq!(near(&train, &[]), []);
    }

    #[test]
    fn half_of_the_words_are_enough() {
        let held_out =
            "A farmer has seven cows and sells three of them on Monday; how many are left by Tuesday noon?";
        let reworded = held_out.replace("Monday", "Sunday");
        assert_eq!(near(&[&reworded], &[held_out]), [Near { train: 0, held_out: 0 }]);
        let less = held_out.replace("three", "two").replace("left", "there");
        assert_eq!(near(&[&less], &[held_out]), []);
    }

    #[test]
    fn how_a_data_set_puts_its_questions_is_no_question() {
        let put = |i: usize| {
            format!(
                "{i} and {} are two numbers. Please reason step by step, and put your final answer in a box.",
                i * i
            )
        };
        let all: Vec<String> = (0..200).map(put).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(near(&all[..100], &all[100..]), []);
        assert_eq!(near(&all[..101], &all[100..]), [Near { train: 100, held_out: 0 }]);
    }

    #[test]
    fn characters_are_words_where_there_are_no_spaces() {
        let text = "小明有三个苹果，小红给了他五个苹果，他一共有多少个苹果？";
        let other = text.replace('五', "六");
        assert_eq!(near(&[&other, "小明有多少钱？"], &[text]), [Near { train: 0, held_out: 0 }]);
    }
}
