//! Turns a grant into requests, and the server's replies into checked rollouts.

use allot_allocation::{Grant, PromptId, SamplerSettings, seed};
use allot_engine::{Answer, End, Sample, Sampling, Stops};
use serde_json::{Value, json};

use crate::client::{Client, Failure};
use crate::protobuf::Sampled;

/// Some rollouts of one prompt, requested together.
#[derive(Clone, Copy)]
pub(crate) struct WantedRollouts {
    pub(crate) prompt: PromptId,
    /// The position of the first one.
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// Returns the requests for a grant, in the order of its lines, with at most `most` rollouts each.
pub(crate) fn wanted(grant: &Grant, most: u32) -> Vec<WantedRollouts> {
    let mut all = Vec::new();
    for line in grant.lines() {
        let mut first = line.first;
        let end = line.first + line.count;
        while first < end {
            let count = most.min(end - first);
            all.push(WantedRollouts { prompt: line.prompt, first, count });
            first += count;
        }
    }
    all
}

/// Returns the seed of a rollout, in the bits that every server accepts.
pub fn wire_seed(run: u64, prompt: PromptId, version: u32, position: u32) -> u32 {
    wire(seed::rollout(run, prompt, version, position))
}

/// Returns a seed in the bits that every server accepts.
pub fn wire(seed: u64) -> u32 {
    (seed >> 33) as u32
}

/// Returns a request's body, without stop texts, because a server accepts only tokens or only texts.
pub(crate) fn body(prompt: &[u32], count: u32, seed: u32, sampling: Sampling, stops: &Stops) -> Value {
    let top_k = if sampling.top_k == 0 { json!(-1) } else { json!(sampling.top_k) };
    json!({
        "num_samples": count,
        "prompt": { "chunks": [{ "type": "encoded_text", "tokens": prompt }] },
        "sampling_params": {
            "max_tokens": sampling.max_tokens,
            "seed": seed,
            "stop": stops.tokens(),
            "temperature": sampling.temperature,
            "top_k": top_k,
            "top_p": sampling.top_p,
        },
    })
}

/// Returns the rollouts of a reply, if they match the request.
pub(crate) fn rollouts(
    client: &Client,
    wanted: WantedRollouts,
    sampled: Sampled,
    (version, vocabulary, sampling, stops): (u32, usize, Sampling, &Stops),
    signals: usize,
) -> Result<Vec<Sample<Answer>>, Failure> {
    if sampled.sequences.len() != wanted.count as usize {
        let (prompt, asked, came) = (wanted.prompt.0, wanted.count, sampled.sequences.len());
        return Err(client.wrong("asample", &format!("{came} rollouts of prompt {prompt}; expected {asked}")));
    }
    let mut all = Vec::with_capacity(sampled.sequences.len());
    for (position, sequence) in (wanted.first..).zip(sampled.sequences) {
        let claim = ClaimedRollout {
            truncated: sequence.stop_reason == "length",
            tokens: sequence.tokens,
            log_probs: sequence.logprobs,
        };
        let claim = claim.cut(stops);
        let place = RolloutKey { prompt: wanted.prompt, position, version, sampling: None };
        let limits = RolloutLimits { vocabulary, longest: sampling.max_tokens as usize, signals };
        let sample = claim.looked_at(place, limits).map_err(|what| client.wrong("asample", &what))?;
        all.push(sample);
    }
    Ok(all)
}

/// A rollout as a server reports it, not yet checked.
pub(crate) struct ClaimedRollout {
    pub(crate) tokens: Vec<u32>,
    /// `None` for a number that is not finite, if a server can report one.
    pub(crate) log_probs: Option<Vec<Option<f32>>>,
    /// Whether it reached the length limit.
    pub(crate) truncated: bool,
}

/// The identity of a rollout.
#[derive(Clone, Copy)]
pub(crate) struct RolloutKey {
    pub(crate) prompt: PromptId,
    pub(crate) position: u32,
    pub(crate) version: u32,
    /// Sampling settings, if they differ from the run's.
    pub(crate) sampling: Option<SamplerSettings>,
}

/// Bounds that a rollout must keep.
#[derive(Clone, Copy)]
pub(crate) struct RolloutLimits {
    pub(crate) vocabulary: usize,
    /// The most tokens of an answer.
    pub(crate) longest: usize,
    /// Number of requested signals. The mean log-probability is the only available one.
    pub(crate) signals: usize,
}

impl ClaimedRollout {
    /// Cuts the rollout after the token that completes a stop text: servers may sample beyond it.
    pub(crate) fn cut(mut self, stops: &Stops) -> Self {
        if let Some(End::Text(at)) = stops.end(&self.tokens) {
            let all = self.tokens.len();
            self.tokens.truncate(at + 1);
            // With another number of log-probabilities, they stay as they are, for the error.
            if let Some(log_probs) = self.log_probs.as_mut().filter(|log_probs| log_probs.len() == all) {
                log_probs.truncate(at + 1);
            }
            self.truncated = false;
        }
        self
    }

    /// Returns the rollout if it is within the limits, else a description of the problem.
    pub(crate) fn looked_at(
        self,
        place: RolloutKey,
        limits: RolloutLimits,
    ) -> Result<Sample<Answer>, String> {
        let (prompt, tokens, most) = (place.prompt.0, self.tokens.len(), limits.longest);
        if tokens == 0 {
            return Err(format!("a rollout of prompt {prompt} without tokens"));
        }
        if tokens > most {
            return Err(format!("a rollout of prompt {prompt} of {tokens} tokens; the limit is {most}"));
        }
        if let Some(token) = self.tokens.iter().find(|t| **t as usize >= limits.vocabulary) {
            return Err(format!("token {token}, which is outside the vocabulary of {}", limits.vocabulary));
        }
        let Some(log_probs) = self.log_probs else {
            return Err(format!("a rollout of prompt {prompt} without log-probabilities"));
        };
        if log_probs.len() != tokens {
            let came = log_probs.len();
            return Err(format!(
                "a rollout of prompt {prompt} of {tokens} tokens and {came} log-probabilities"
            ));
        }
        // Values slightly above 0 are rounding errors.
        let good = |l: &Option<f32>| l.filter(|l| l.is_finite() && *l <= 1e-3);
        let Some(log_probs) = log_probs.iter().map(good).collect::<Option<Vec<f32>>>() else {
            return Err(format!("an invalid log-probability of prompt {prompt}"));
        };
        let log_prob: f64 = log_probs.iter().map(|l| f64::from(*l)).sum();
        Ok(Sample {
            prompt: place.prompt,
            position: place.position,
            version: place.version,
            tokens: tokens as u32,
            truncated: self.truncated,
            log_prob,
            signals: vec![(log_prob / tokens as f64) as f32; limits.signals],
            answer: Answer { tokens: self.tokens, log_probs, ..Answer::default() },
            sampling: place.sampling,
        })
    }
}
