//! Stop conditions of an answer: stop tokens, and stop texts matched by bytes. A text may span tokens and
//! end in the middle of one. The bytes of each token are given; this module does not use a tokenizer.

use std::sync::Arc;

/// Stop tokens and stop texts. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stops {
    tokens: Vec<u32>,
    texts: Option<Arc<StopTexts>>,
}

/// The bytes of each token of a vocabulary, in the order of the tokens.
#[derive(Clone, Debug, Default)]
pub struct TokenBytes {
    bytes: Vec<u8>,
    /// End of each token in `bytes`.
    ends: Vec<usize>,
}

/// Stop texts, matched in the bytes of an answer's tokens by an automaton (Aho and Corasick 1975).
#[derive(Debug)]
pub struct StopTexts {
    texts: Vec<String>,
    pieces: TokenBytes,
    /// Next state by state and byte. A state is the longest prefix of a text that the last bytes match.
    next: Vec<[u16; 256]>,
    /// Whether a text is complete, by state.
    whole: Vec<bool>,
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A stop text is completed in the token at this index.
    Text(usize),
    /// A stop token at this index ends the answer; no stop text is complete.
    Token(usize),
}

/// Progress of an answer along the stop texts: a state of [`StopTexts`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch(u16);

impl End {
    /// Returns the index of the answer's last token.
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
    /// Returns the bytes of a token; empty for an unknown token.
    pub fn of(&self, token: u32) -> &[u8] {
        let i = token as usize;
        let from = i.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(i).map_or(&[], |end| &self.bytes[from..*end])
    }
}

impl StopTexts {
    /// Maximum number of bytes of all stop texts together.
    pub const MOST: usize = 4096;

    /// Builds the automaton. `texts` are non-empty, with at most [`StopTexts::MOST`] bytes together.
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
        // Failure links: where no text continues, fall back to the longest suffix that begins a text.
        // Shorter states come first, so that a state's fallback is complete before the state itself.
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
    /// Adds stop texts.
    pub fn with_texts(self, texts: StopTexts) -> Self {
        Self { texts: Some(Arc::new(texts)), ..self }
    }

    /// The stop tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The stop texts.
    pub fn texts(&self) -> &[String] {
        self.texts.as_ref().map_or(&[], |texts| &texts.texts)
    }

    /// Returns where an answer with these tokens ends, if it does.
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
    /// Returns whether the answer ends with or within this token.
    pub fn ends(&mut self, stops: &Stops, token: u32) -> bool {
        self.texts(stops, token) || stops.tokens.contains(&token)
    }

    /// Returns whether a stop text is completed in this token.
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

    /// Tokens of one to three letters `a` or `b`, and one empty token.
    fn pieces() -> Vec<Vec<u8>> {
        let letters = |n: usize| (0..1_usize << n).map(move |i| (0..n).map(|k| b"ab"[i >> k & 1]).collect());
        (1..=3).flat_map(letters).chain([Vec::new()]).collect()
    }

    /// Returns the token in which a text is first completed, by plain search.
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
