//! An answer on its way: tokens are drawn here, so that the same logits give the same answer whatever made
//! them. A device that draws by itself is given the random numbers from here, and tells what it drew.

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
    /// Nothing yet.
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

    /// Tokens so far.
    pub fn len(&self) -> usize {
        self.answer.tokens.len()
    }

    /// Its newest token; there is one.
    pub fn newest(&self) -> u32 {
        self.answer.tokens[self.answer.tokens.len() - 1]
    }

    /// Whether it has come to its end.
    pub fn done(&self) -> bool {
        self.done
    }

    /// How its tokens are drawn. This and the two that follow are for devices that draw by themselves.
    #[cfg(any(feature = "cuda", test))]
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Draws a token from logits that are divided by the temperature.
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

    /// The random numbers that its next tokens are drawn with, as long as there are places for them.
    #[cfg(any(feature = "cuda", test))]
    pub fn random(&self, units: &mut [f64]) {
        let mut stream = self.stream.clone();
        units.fill_with(|| stream.unit());
    }

    /// A token that a device drew with the next of them, from logits divided by the temperature.
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

    /// Divides a row of logits by its temperature.
    pub fn cool(&self, logits: &mut [f32]) {
        let divisor = self.sampling.divisor();
        if divisor != 1.0 {
            let scale = 1.0 / divisor;
            for l in logits {
                *l *= scale;
            }
        }
    }

    /// The whole answer.
    pub fn finish(mut self) -> Answered {
        self.answer.entropy = (self.entropy / self.answer.tokens.len() as f64) as f32;
        self.answer
    }
}
