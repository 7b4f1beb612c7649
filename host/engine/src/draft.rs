//! An answer on its way: every core draws its tokens here, so that the same logits give the same answer
//! whatever made them.

use allot_allocation::seed::Stream;

use crate::core::{Answered, Request};
use crate::cpu::thought;
use crate::sampler::Sampling;

/// An answer so far.
pub struct Draft {
    sampling: Sampling,
    stream: Stream,
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

    /// Draws a token from logits that are divided by the temperature.
    pub fn take(&mut self, logits: &[f32], stops: &[u32]) {
        let token = self.sampling.draw(logits, self.stream.unit());
        let thought = thought(logits, token as usize);
        self.entropy += f64::from(thought.entropy);
        self.answer.tokens.push(token);
        self.answer.log_probs.push(thought.log_prob);
        let stopped = stops.contains(&token);
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
