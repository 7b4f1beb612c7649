//! Questions that are nearly another one: runs of words that both have.
//!
//! A question to train on is nearly a held-out one if at least half of the held-out question's words lie in runs of
//! eight that both have. Tülu 3 tells contaminated training data by the same two numbers (Lambert et al. 2024,
//! section 3.2).
//! A run that many held-out questions have is how a data set puts its questions, and no part of any of them. The
//! work is linear in the length of all texts.

use std::collections::HashMap;

/// Words in a run.
const RUN: usize = 8;
/// What hashes grow by: any odd number without a pattern. It is that of 64-bit FNV.
const BASE: u64 = 0x0100_0000_01b3;
/// A run that more held-out questions than this have is left out of account.
const COMMON: usize = 16;

/// A question to train on that is nearly a held-out one, both by their places in the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// That to train on.
    pub train: usize,
    /// The held-out one that it has most of.
    pub held_out: usize,
}

/// The questions to train on that are nearly held-out ones, each with the nearest.
pub fn near(train: &[&str], held_out: &[&str]) -> Vec<Near> {
    let known = Known::of(held_out);
    let nearest = |(at, text): (usize, &&str)| {
        known.nearest(text).map(|held_out| Near { train: at, held_out: held_out as usize })
    };
    train.iter().enumerate().filter_map(nearest).collect()
}

/// The runs of held-out questions.
struct Known {
    /// Each run's hash, a question that has it and the run's first word there, sorted.
    owned: Vec<(u64, u32, u32)>,
    /// Where a run begins in that list, and how many lines it has; of those that count.
    begins: HashMap<u64, (u32, u32)>,
    /// Of each question, how many of its words lie in runs that count.
    counts: Vec<u32>,
}

impl Known {
    fn of(texts: &[&str]) -> Self {
        let one = |(at, text): (u32, &&str)| (0..).zip(runs(text)).map(move |(word, run)| (run, at, word));
        let mut owned: Vec<(u64, u32, u32)> = (0..).zip(texts).flat_map(one).collect();
        owned.sort_unstable();
        let (mut begins, mut found, mut begin) = (HashMap::new(), Vec::new(), 0);
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

    /// The question that at least half is here of; of several the one that most is here of.
    fn nearest(&self, text: &str) -> Option<u32> {
        let known = runs(text).into_iter().filter_map(|run| self.begins.get(&run));
        let lines = known.flat_map(|(begin, n)| &self.owned[*begin as usize..(begin + n) as usize]);
        let shared = covered(lines.map(|(_, at, word)| (*at, *word)).collect());
        let enough = shared.into_iter().filter(|(at, words)| 2 * words >= self.counts[*at as usize]);
        enough.max_by_key(|(at, words)| (*words, std::cmp::Reverse(*at))).map(|(at, _)| at)
    }
}

/// Of each question that is among these, how many words lie in runs that begin at these words.
fn covered(mut found: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    found.sort_unstable();
    found.dedup();
    let words = |begins: &[(u32, u32)]| {
        let apart = begins.windows(2).map(|two| (two[1].1 - two[0].1).min(RUN as u32));
        (begins[0].0, RUN as u32 + apart.sum::<u32>())
    };
    found.chunk_by(|a, b| a.0 == b.0).map(words).collect()
}

/// The hashes of a text's runs of words, in their order: each word's by a power of a number, so that one run's
/// follows from that of the run before.
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

/// The hashes of a text's words: runs of letters and digits, whatever their case. In scripts that put no space
/// between words each character is one.
fn words(text: &str) -> Vec<u64> {
    let mut words = Vec::new();
    let mut word = None;
    for c in text.chars().flat_map(char::to_lowercase) {
        let alone = matches!(c, '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..);
        if alone || !c.is_alphanumeric() {
            words.extend(word.take());
        }
        if alone {
            words.push(c.into());
        } else if c.is_alphanumeric() {
            word = Some((word.unwrap_or(0) ^ u64::from(c)).wrapping_mul(BASE));
        }
    }
    words.extend(word);
    for word in &mut words {
        *word = mixed(*word);
    }
    words
}

/// Bits well mixed: the last steps of SplitMix64 (Steele et al. 2014).
fn mixed(bits: u64) -> u64 {
    let mut z = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
