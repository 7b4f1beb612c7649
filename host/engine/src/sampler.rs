//! Drawing a token from logits: temperature, top-k, top-p, and one random number for each token.

pub use allot_settings::Sampling;

use crate::cpu::kernels::{exp, largest, sum, wide};

/// Returns the token for `unit`, a uniform random number in [0, 1). `logits` are already
/// divided by the temperature.
///
/// Tokens share the unit interval in the order of the vocabulary; tokens excluded by top-k and
/// top-p have no share. Ties at the cutoff go to the token with the smaller id.
pub fn draw(sampling: &Sampling, logits: &[f32], unit: f64) -> u32 {
    if sampling.temperature == 0.0 {
        return first_largest(logits);
    }
    if !sampling.cuts() {
        return of_all(logits, unit);
    }
    of_some(logits, &left(sampling, logits), unit)
}

/// Returns the tokens that remain after top-k and top-p, in the order of the vocabulary.
pub fn left(sampling: &Sampling, logits: &[f32]) -> Vec<u32> {
    let top = largest(logits);
    let weight = |l: f32| f64::from(l - top).exp();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    if sampling.top_k > 0 {
        order.truncate(sampling.top_k);
    }
    if sampling.top_p < 1.0 {
        let total: f64 = order.iter().map(|i| weight(logits[*i])).sum();
        let mut sum = 0.0;
        let needed = order.iter().position(|i| {
            sum += weight(logits[*i]);
            sum >= f64::from(sampling.top_p) * total
        });
        order.truncate(needed.map_or(order.len(), |n| n + 1));
    }
    order.sort_unstable();
    order.into_iter().map(|i| i as u32).collect()
}

/// Draws from the tokens in `left`.
pub fn of_some(logits: &[f32], left: &[u32], unit: f64) -> u32 {
    let top = largest(logits);
    let weight = |i: &u32| f64::from(logits[*i as usize] - top).exp();
    let total: f64 = left.iter().map(weight).sum();
    share(left.iter().map(|i| (*i as usize, weight(i))), unit * total)
}

/// Tokens whose weights are summed together.
const PART: usize = 512;

/// Draws from all tokens. Vocabularies are large and this runs for every token. So the weights
/// are first summed in parts, with the machine's widest vectors, and only one part is searched.
fn of_all(logits: &[f32], unit: f64) -> u32 {
    let top = wide(
        #[inline(always)]
        || largest(logits),
    );
    let mut weights = [0.0_f32; PART];
    let mut weigh = |part: &[f32]| {
        wide(
            #[inline(always)]
            || {
                for (w, l) in weights.iter_mut().zip(part) {
                    *w = exp(l - top);
                }
            },
        );
        weights
    };
    let sums: Vec<f64> = logits.chunks(PART).map(|part| f64::from(sum(&weigh(part)[..part.len()]))).collect();
    let mut point = unit * sums.iter().sum::<f64>();
    let mut at = 0;
    while at + 1 < sums.len() && point >= sums[at] {
        point -= sums[at];
        at += 1;
    }
    let part = &logits[at * PART..logits.len().min((at + 1) * PART)];
    let weights = weigh(part);
    let shares = weights[..part.len()].iter().enumerate().map(|(i, w)| (i, f64::from(*w)));
    (at * PART) as u32 + share(shares, point)
}

/// Returns the token whose share of the interval contains `point`.
fn share(tokens: impl Iterator<Item = (usize, f64)>, point: f64) -> u32 {
    let (mut sum, mut last) = (0.0, 0);
    for (token, weight) in tokens {
        if weight > 0.0 {
            sum += weight;
            last = token;
            if point < sum {
                break;
            }
        }
    }
    last as u32
}

fn first_largest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, l) in logits.iter().enumerate() {
        if *l > logits[best] {
            best = i;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ln of 0.5, 0.125, 0.25, 0.125.
    fn logits() -> Vec<f32> {
        [0.5_f32, 0.125, 0.25, 0.125].iter().map(|p| p.ln()).collect()
    }

    fn draws(sampling: Sampling) -> Vec<u32> {
        (0..16).map(|i| draw(&sampling, &logits(), (f64::from(i) + 0.5) / 16.0)).collect()
    }

    #[test]
    fn tokens_have_their_share_of_the_line() {
        let all = draws(Sampling::default());
        assert_eq!(all, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3]);
    }

    #[test]
    fn a_large_vocabulary_is_drawn_from_like_a_small_one() {
        // Only four of the many tokens are likely: the tokens of the small case, far apart.
        let places = [7, 600, 1300, 1999];
        let mut many = vec![-80.0; 2000];
        places.iter().zip(logits()).for_each(|(place, l)| many[*place] = l);
        for i in 0..160 {
            let unit = (f64::from(i) + 0.5) / 160.0;
            let small = draw(&Sampling::default(), &logits(), unit) as usize;
            assert_eq!(draw(&Sampling::default(), &many, unit) as usize, places[small], "{unit}");
        }
    }

    #[test]
    fn what_is_cut_off_is_never_drawn() {
        let top_k = draws(Sampling { top_k: 2, ..Sampling::default() });
        assert_eq!(top_k.iter().filter(|t| **t == 0).count(), 11);
        assert!(top_k.iter().all(|t| *t == 0 || *t == 2));
        let top_p = draws(Sampling { top_p: 0.6, ..Sampling::default() });
        assert_eq!(top_p, top_k, "0.5 is too little, 0.75 enough");
        // A tie at the cutoff goes to the first token.
        assert!(draws(Sampling { top_k: 3, ..Sampling::default() }).contains(&1));
        assert!(!draws(Sampling { top_k: 3, ..Sampling::default() }).contains(&3));
    }

    #[test]
    fn what_is_left_is_what_is_drawn_from() {
        let top_p = Sampling { top_p: 0.6, ..Sampling::default() };
        assert_eq!(left(&top_p, &logits()), [0, 2]);
        let both = Sampling { top_k: 3, top_p: 0.6, ..Sampling::default() };
        assert_eq!(left(&both, &logits()), [0, 2], "of three a share of 0.571 is too little");
        assert!(!Sampling::default().cuts() && top_p.cuts());
    }

    #[test]
    fn without_temperature_the_likeliest_comes() {
        assert!(draws(Sampling { temperature: 0.0, ..Sampling::default() }).iter().all(|t| *t == 0));
    }
}
