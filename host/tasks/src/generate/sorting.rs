//! Sortings: numbers to sort, in ascending or descending order.

use super::{Exercise, Style};

/// Returns the problem for these choices: the direction, then the numbers.
pub(super) fn exercise(choices: &[usize], style: Style) -> Exercise {
    let (up, numbers) = (choices[0] == 0, &choices[1..]);
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut answer = sorted.clone();
    if !up {
        answer.reverse();
    }
    let (sign, direction) = if up { ('<', "ascending") } else { ('>', "descending") };
    Exercise {
        terse: format!("{sign}{}:", listed(numbers, ",")),
        // The first line is that of reasoning_gym/algorithmic/number_sorting.py. Its rules for a list of
        // quoted numbers are left out, because its grader is more tolerant than ours.
        words: format!(
            "Sort these numbers in {direction} order: {}\nGive only the numbers, separated by commas, as your \
             final answer.",
            listed(numbers, ", ")
        ),
        gold: listed(&answer, if style == Style::Terse { "," } else { ", " }),
        essence: format!("{sign}{}", listed(&sorted, ",")),
    }
}

fn listed(numbers: &[usize], between: &str) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_sorted_as_numbers() {
        let down = exercise(&[1, 9, 10, 9, 100], Style::Terse);
        assert_eq!((down.terse.as_str(), down.gold.as_str()), (">9,10,9,100:", "100,10,9,9"));
        let up = exercise(&[0, 9, 10, 100], Style::Words);
        assert!(up.words.starts_with("Sort these numbers in ascending order: 9, 10, 100\n"));
        assert_eq!(up.gold, "9, 10, 100");
    }
}
