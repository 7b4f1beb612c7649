//! Explanations of the terms on a page.

use maud::{Markup, html};

use crate::number;
use crate::report::Report;

/// Returns the section on how to read the page.
pub fn reading(report: &Report) -> Markup {
    let percent = number::percent_tick(report.confidence);
    html! {
        dl {
            dt { "An arm" }
            dd {
                "is a policy with its settings. Its runs differ by their seed alone. A seed decides what is \
                 sampled, in which order, and by which luck; the same seed of two arms starts them alike, \
                 so arms are compared seed by seed."
                @if report.has_unpaired() {
                    " Arms whose runs are not paired by seed are compared as two samples, by Welch's t-test; a ratio of their \
                     costs is that of the geometric means."
                }
            }
            dt { "Cost" }
            dd {
                "is told on several axes, as “the same compute” can mean each of them. A policy that \
                 samples little may train a lot: look at more than one axis. Evaluation is counted in none \
                 of them."
            }
            dt { "Censoring" }
            dd {
                "A run that ends without reaching a target has not “no cost to target”: it says that the \
                 cost is more than what it spent. To leave it out, or to count its end as its cost, would \
                 make the arm look better than it is. A target counts as reached at the first evaluation at \
                 or above it."
            }
            dt { "Kaplan–Meier" }
            dd {
                "is the estimate of the share of runs that have not reached a target by a cost, with each \
                 run counted as long as it was looked at. The figure shows one minus that. The median is \
                 where it passes one half; it is “not reached” where fewer than half of the runs got there. \
                 An end of its interval that is “–” lies beyond what was looked at."
            }
            dt { "Fewer and more" }
            dd {
                "“1.50× fewer” means that the baseline's cost is 1.50 times the arm's, “1.50× more” that the arm's is 1.50 \
                 times the baseline's. Where all runs of both reached the target, this is the geometric mean of the \
                 ratios over seeds, with Student's interval on logarithms. It is the ratio \
                 of the two geometric means in the table of costs. Where a run did not reach it, its cost is \
                 not known and there is no such ratio. What is known is which run of a pair was cheaper, as \
                 long as one of them reached it; the sign test on these pairs gives bounds, “at least 1.40× fewer”, or none \
                 where there are fewer than six."
            }
            dt { "Intervals" }
            dd {
                "are " (percent) " intervals over runs: pointwise for bands, so a whole band holds \
                 less often than each of its points. They tell of other seeds, not of other models or other \
                 data. Two intervals that overlap do not mean that there is no difference: look at the \
                 paired difference."
            }
            dt { "Middle half of parts and runs, probability of improvement" }
            dd {
                "The interquartile mean: the mean of all last accuracies, a number for each part of what is held \
                 out and each run, without the lowest and the highest quarter. It moves less with one odd \
                 run than the mean, and less by jumps than the median. Each part counts alike, however many problems \
                 it has, and parts at an end fall out: it can be far from the mean. The probability that a run of the \
                 arm is better than a run of the baseline, over parts: 50 % is no difference."
            }
            dt { "Holm" }
            dd {
                "With many arms one of them will look different by luck. Holm's correction makes p-values \
                 larger, so that the chance of even one false “different” among all arms stays as small as \
                 it was asked to be."
            }
            dt { "Verdicts" }
            dd {
                "What an arm costs to a target and how accurate it is when the budget ends are two questions; \
                 each has a word of its own. “Inconclusive” means that these seeds do not tell, not that there is no difference. “Seeds needed” says \
                 how many would tell a difference of the size seen here, four times out of five. “Same” is \
                 said only where the interval leaves no room for a difference that matters."
            }
            dt { "Best accuracy" }
            dd {
                "is the highest of a run's evaluations, on the same problems that it is reported on. The \
                 highest of many noisy numbers is too high, the more so the more often a run was evaluated. \
                 It is shown as others show it; no verdict is made of it."
            }
            dt { "Where rollouts go" }
            dd {
                "A group whose rollouts are all right or all wrong has no advantage: nothing is learned \
                 from it, and it costs the same. “Stale” rollouts were held for later steps and grew too \
                 old. Reward of what was trained on is filtered: a policy that trains on mixed groups only \
                 is near one half whatever the model can do."
            }
        }
    }
}
