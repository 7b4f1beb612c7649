//! What ends an answer: tokens, and texts by their bytes. A text may span tokens, and end in the middle of one. The
//! bytes of each token are given; this file knows no tokenizer.

use std::sync::Arc;

/// What ends an answer. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stops {
    tokens: Vec<u32>,
    texts: Option<Arc<StopTexts>>,
}

/// The bytes that each token of a vocabulary stands for, in the order of the tokens.
#[derive(Clone, Debug, Default)]
pub struct TokenBytes {
    bytes: Vec<u8>,
    /// Where each token's end.
    ends: Vec<usize>,
}

/// Texts that end an answer, looked for in the bytes of its tokens by an automaton (Aho and Corasick 1975).
#[derive(Debug)]
pub struct StopTexts {
    texts: Vec<String>,
    pieces: TokenBytes,
    /// By state and byte the next state: a state is how much of the texts the last bytes are.
    next: Vec<[u16; 256]>,
    /// Whether one of the texts has come to its end in a state.
    whole: Vec<bool>,
}

/// Where an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In this token, by its place, for a text has come to its end.
    Text(usize),
    /// With this token, and without one of the texts.
    Token(usize),
}

/// How far an answer has come along the texts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch(u16);

impl End {
    /// The place of the token with which an answer ends.
    pub fn at(self) -> usize {
        match self {
            Self::Token(at) | Self::Text(at) => at,
        }
    }
}

impl FromIterator<Vec<u8>> for TokenBytes {
    fn from_iter<I: IntoIterator<Item = Vec<u8>>>(tokens: I) -> Self {
        let mut all = Self::default();
        for piece in tokens {
            all.bytes.extend(piece);
            all.ends.push(all.bytes.len());
        }
        all
    }
}

impl TokenBytes {
    /// What a token stands for; nothing for one that is not there.
    pub fn of(&self, token: u32) -> &[u8] {
        let i = token as usize;
        let from = i.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(i).map_or(&[], |end| &self.bytes[from..*end])
    }
}

impl StopTexts {
    /// Bytes that the texts may have together.
    pub const MOST: usize = 4096;

    /// Texts, none of them empty and no more than [`StopTexts::MOST`] bytes together, and what tokens stand for.
    pub fn new(texts: Vec<String>, pieces: TokenBytes) -> Self {
        let (mut next, mut whole) = (vec![[0; 256]], vec![false]);
        for text in &texts {
            let mut state = 0;
            for byte in text.bytes() {
                let after = next[state][usize::from(byte)];
                state = if after == 0 {
                    let new = next.len();
                    next[state][usize::from(byte)] = new as u16;
                    next.push([0; 256]);
                    whole.push(false);
                    new
                } else {
                    usize::from(after)
                };
            }
            whole[state] = true;
        }
        // Where a text does not go on, the longest end of the bytes so far does that one begins with. Shorter states
        // come first: those that a state goes on like are done before it.
        let mut like = vec![0_usize; next.len()];
        let mut order: std::collections::VecDeque<usize> =
            next[0].iter().filter(|state| **state > 0).map(|state| usize::from(*state)).collect();
        while let Some(state) = order.pop_front() {
            #[allow(
                clippy::needless_range_loop,
                reason = "two rows of one table, and one of them is written"
            )]
            for byte in 0..256 {
                let (own, other) = (usize::from(next[state][byte]), next[like[state]][byte]);
                if own == 0 {
                    next[state][byte] = other;
                } else {
                    like[own] = usize::from(other);
                    whole[own] |= whole[like[own]];
                    order.push_back(own);
                }
            }
        }
        Self { texts, pieces, next, whole }
    }
}

impl From<Vec<u32>> for Stops {
    fn from(tokens: Vec<u32>) -> Self {
        Self { tokens, texts: None }
    }
}

impl<const N: usize> From<[u32; N]> for Stops {
    fn from(tokens: [u32; N]) -> Self {
        tokens.to_vec().into()
    }
}

impl Stops {
    /// The same, and these texts.
    pub fn with_texts(self, texts: StopTexts) -> Self {
        Self { texts: Some(Arc::new(texts)), ..self }
    }

    /// The tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The texts.
    pub fn texts(&self) -> &[String] {
        self.texts.as_ref().map_or(&[], |texts| &texts.texts)
    }

    /// Where an answer of these tokens ends, if it does.
    pub fn end(&self, tokens: &[u32]) -> Option<End> {
        let mut watch = Watch::default();
        tokens.iter().enumerate().find_map(|(at, token)| {
            if watch.texts(self, *token) {
                return Some(End::Text(at));
            }
            self.tokens.contains(token).then_some(End::Token(at))
        })
    }
}

impl Watch {
    /// Whether an answer ends with this token, or within it.
    pub fn ends(&mut self, stops: &Stops, token: u32) -> bool {
        self.texts(stops, token) || stops.tokens.contains(&token)
    }

    /// Whether a text comes to its end in this token.
    fn texts(&mut self, stops: &Stops, token: u32) -> bool {
        let Some(texts) = &stops.texts else { return false };
        let mut ended = false;
        for byte in texts.pieces.of(token) {
            self.0 = texts.next[usize::from(self.0)][usize::from(*byte)];
            ended |= texts.whole[usize::from(self.0)];
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use allot_allocation::seed::Stream;

    use super::*;

    /// Tokens that are one to three letters of `ab`, and one that is nothing.
    fn pieces() -> Vec<Vec<u8>> {
        let letters = |n: usize| (0..1_usize << n).map(move |i| (0..n).map(|k| b"ab"[i >> k & 1]).collect());
        (1..=3).flat_map(letters).chain([Vec::new()]).collect()
    }

    /// The token in which one of the texts first comes to its end, looked for as anybody would.
    fn plain(texts: &[String], pieces: &[Vec<u8>], tokens: &[u32]) -> Option<usize> {
        (0..tokens.len()).find(|at| {
            let so_far: Vec<u8> = tokens[..=*at].iter().flat_map(|t| pieces[*t as usize].clone()).collect();
            texts.iter().any(|text| so_far.windows(text.len()).any(|window| window == text.as_bytes()))
        })
    }

    #[test]
    fn a_text_is_found_wherever_tokens_are_cut() {
        let pieces = pieces();
        let mut found = [0; 2];
        for case in 0..4000 {
            let stream = &mut Stream::new(case);
            let letters = |n: usize, stream: &mut Stream| -> String {
                (0..n).map(|_| ['a', 'b'][stream.below(2)]).collect()
            };
            let texts: Vec<String> = (0..=case % 3).map(|_| letters(1 + stream.below(8), stream)).collect();
            let tokens: Vec<u32> = (0..12).map(|_| stream.below(pieces.len()) as u32).collect();
            let bytes: TokenBytes = pieces.iter().cloned().collect();
            let stops = Stops::default().with_texts(StopTexts::new(texts.clone(), bytes));
            let expected = plain(&texts, &pieces, &tokens);
            assert_eq!(stops.end(&tokens), expected.map(End::Text), "{texts:?} in {tokens:?}");
            found[usize::from(expected.is_some())] += 1;
        }
        assert!(found.iter().all(|n| *n > 500), "{found:?}");
    }

    #[test]
    fn a_token_ends_an_answer_where_no_text_has_before() {
        let pieces: TokenBytes = ["a", "ab", "\u{20ac}"].map(|p| p.as_bytes().to_vec()).into_iter().collect();
        let euro = StopTexts::new(vec!["b\u{20ac}".to_owned()], pieces);
        let stops = Stops::from([0, 7]).with_texts(euro);
        assert_eq!(stops.end(&[1, 2, 0]), Some(End::Text(1)));
        assert_eq!(stops.end(&[1, 1, 0, 2]), Some(End::Token(2)));
        assert_eq!(stops.end(&[2, 1, 99, 1]), None, "an unknown token is nothing");
        assert_eq!(stops.end(&[2, 7]), Some(End::Token(1)));
        assert_eq!(Stops::default().end(&[1, 2]), None);
    }
}
