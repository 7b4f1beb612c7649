//! pass@k: the probability that one of k answers is right, from n answers of which c are right.

/// Returns the unbiased pass@k, `1 - C(n - c, k) / C(n, k)` (Chen et al. 2021, arXiv 2107.03374, eq. 1),
/// from 0 to 1. Computed as the product of their figure 3, which neither overflows nor cancels.
///
/// `None` if k is above n, since there are too few answers, or if c is above n.
pub fn pass_at_k(n: u32, c: u32, k: u32) -> Option<f64> {
    if k > n || c > n {
        return None;
    }
    if n - c < k {
        return Some(1.0);
    }
    // C(n - c, k) / C(n, k) is symmetric in c and k: the product needs only the lesser number of factors.
    let (few, many) = (c.min(k), c.max(k));
    let none_right: f64 = (n - few + 1..=n).map(|i| 1.0 - f64::from(many) / f64::from(i)).product();
    Some(1.0 - none_right)
}

/// Returns the mean of pass@k over prompts, each given as its numbers of answers and of right answers.
///
/// `None` without prompts, or if any prompt has fewer than k answers: the mean over the others would be for
/// another set.
pub fn mean_pass_at_k(prompts: &[(u32, u32)], k: u32) -> Option<f64> {
    if prompts.is_empty() {
        return None;
    }
    let sum: Option<f64> = prompts.iter().map(|(n, c)| pass_at_k(*n, *c, k)).sum();
    sum.map(|sum| sum / prompts.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_answers_do_not_tell() {
        assert_eq!(pass_at_k(4, 2, 5), None);
        assert_eq!(pass_at_k(4, 5, 2), None);
        assert_eq!(pass_at_k(0, 0, 1), None);
        assert_eq!(mean_pass_at_k(&[], 1), None);
        assert_eq!(mean_pass_at_k(&[(8, 1), (4, 4)], 5), None);
    }

    #[test]
    fn the_ends_are_exact() {
        assert_eq!(pass_at_k(8, 0, 3), Some(0.0));
        assert_eq!(pass_at_k(8, 8, 3), Some(1.0));
        assert_eq!(pass_at_k(8, 6, 3), Some(1.0));
        assert_eq!(pass_at_k(8, 3, 0), Some(0.0));
        assert_eq!(pass_at_k(u32::MAX, 1, u32::MAX), Some(1.0));
    }

    #[test]
    fn pass_at_1_is_the_share_that_is_right() {
        assert!(pass_at_k(10, 3, 1).is_some_and(|p| (p - 0.3).abs() < 1e-15));
        assert!(mean_pass_at_k(&[(10, 3), (2, 1)], 1).is_some_and(|p| (p - 0.4).abs() < 1e-15));
    }
}
