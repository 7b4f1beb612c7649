//! Sums by hand: column by column from the right, where carries may be forgotten.

/// Returns the sum of some terms, in which each carry or borrow that `forgets` says is forgotten. That of the leftmost
/// column is always written down. `None` if it does not fit 64 bits.
///
/// ```
/// use allot_tasks::column_sum::column_sum;
///
/// assert_eq!(column_sum(&[95, 17], || false), Some(112));
/// assert_eq!(column_sum(&[95, 17], || true), Some(102));
/// ```
pub fn column_sum(terms: &[i64], mut forgets: impl FnMut() -> bool) -> Option<i64> {
    let total = terms.iter().try_fold(0_i64, |sum, term| sum.checked_add(*term))?;
    // A negative result is computed as the negated sum of negated terms.
    let sign = if total < 0 { -1 } else { 1 };
    let longest = terms.iter().map(|t| t.unsigned_abs().to_string().len() as u32).max()?;
    let (mut value, mut carry) = (0, 0);
    for column in 0..longest {
        let place = 10_i64.checked_pow(column)?;
        let sum: i64 = carry + terms.iter().map(|t| sign * (t / place % 10)).sum::<i64>();
        value += sum.rem_euclid(10) * place;
        carry = sum.div_euclid(10);
        if column + 1 == longest {
            value += carry.checked_mul(place.checked_mul(10)?)?;
        } else if carry != 0 && forgets() {
            carry = 0;
        }
    }
    Some(sign * value)
}
