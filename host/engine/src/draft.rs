//! An answer that is being generated. Tokens are drawn here, so that equal logits give equal answers.
//! A device that draws tokens itself takes its random numbers from here and reports each token.

use allot_allocation::seed::Stream;

use crate::core::{Answered, Request, TokenStatistics};
use crate::mask::leave;
use crate::sampler::{Sampling, draw, left, of_some};
use crate::stops::{Stops, Watch};

/// An answer so far.
pub struct Draft {
    sampling: Sampling,
    stream: Stream,
    watch: Watch,
    entropy: f64,
    answer: Answered,
    done: bool,
}

impl Draft {
    /// Returns an empty answer.
    pub fn new(request: &Request<'_>) -> Self {
        Self {
            sampling: request.sampling,
            stream: Stream::new(request.seed),
            watch: Watch::default(),
            entropy: 0.0,
            answer: Answered::default(),
            done: false,
        }
    }

    /// Returns the number of tokens so far.
    pub fn len(&self) -> usize {
        self.answer.tokens.len()
    }

    /// Returns its newest token; there must be one.
    pub fn newest(&self) -> u32 {
        self.answer.tokens[self.answer.tokens.len() - 1]
    }

    /// Returns whether the answer has ended.
    pub fn done(&self) -> bool {
        self.done
    }

    /// Returns how its tokens are drawn. Like `random` and `told`, for devices that draw tokens themselves.
    #[cfg(any(feature = "cuda", test))]
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Draws a token from logits already divided by the temperature.
    pub fn take(&mut self, logits: &[f32], stops: &Stops) {
        let unit = self.stream.unit();
        if !self.sampling.keep_mask || !self.sampling.cuts() {
            let token = draw(&self.sampling, logits, unit);
            return self.push(token, TokenStatistics::of(logits, token as usize), stops);
        }
        let left = left(&self.sampling, logits);
        let token = of_some(logits, &left, unit);
        let mut masked = logits.to_vec();
        leave(&mut masked, &left);
        self.answer.mask.push(&left);
        self.push(token, TokenStatistics::of(&masked, token as usize), stops);
    }

    /// Fills `units` with the random numbers of the next tokens, without consuming them.
    #[cfg(any(feature = "cuda", test))]
    pub fn random(&self, units: &mut [f64]) {
        let mut stream = self.stream.clone();
        units.fill_with(|| stream.unit());
    }

    /// Records a token that a device drew with the next random number, from logits over the temperature.
    #[cfg(any(feature = "cuda", test))]
    pub fn told(&mut self, token: u32, statistics: TokenStatistics, stops: &Stops) {
        self.stream.unit();
        self.push(token, statistics, stops);
    }

    fn push(&mut self, token: u32, statistics: TokenStatistics, stops: &Stops) {
        self.entropy += f64::from(statistics.entropy);
        self.answer.tokens.push(token);
        self.answer.log_probs.push(statistics.log_prob);
        let stopped = self.watch.ends(stops, token);
        let full = self.answer.tokens.len() >= self.sampling.max_tokens as usize;
        self.answer.truncated = full && !stopped;
        self.done = stopped || full;
    }

    /// Divides a row of logits by the temperature.
    pub fn cool(&self, logits: &mut [f32]) {
        let divisor = self.sampling.divisor();
        if divisor != 1.0 {
            let scale = 1.0 / divisor;
            for l in logits {
                *l *= scale;
            }
        }
    }

    /// Returns the complete answer.
    pub fn finish(mut self) -> Answered {
        self.answer.entropy = (self.entropy / self.answer.tokens.len() as f64) as f32;
        self.answer
    }
}
