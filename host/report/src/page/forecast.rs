//! A forecast as a page.

use allot_allocation::shown::safe;
use maud::{DOCTYPE, Markup, html};

use super::{begin, picture, quoted, table};
use crate::figure;
use crate::forecast::Forecast;
use crate::tables;

/// The sections of the page: ids and titles.
const SECTIONS: [(&str, &str); 6] = [
    ("short", "In short"),
    ("ratios", "What it saves"),
    ("log", "The log"),
    ("limits", "What the log cannot tell"),
    ("settings", "Settings"),
    ("reading", "How to read this"),
];

/// Returns the page of a forecast as HTML: one file without scripts, network access or other files.
pub fn forecast_html(forecast: &Forecast) -> String {
    let figures = figure::of_forecast(forecast);
    let (pass_rates, ratios) = figures.split_last().expect("the last figure is the one of pass rates");
    let bodies = [
        html! {
            (table::table(forecast.baseline, &tables::forecast::pays(forecast)))
            p { strong { "Advice" } ": " (quoted(&forecast.advice)) "." }
            (list(&forecast.left_out))
        },
        html! { @for figure in ratios { (picture::figure(figure)) } },
        html! { (picture::figure(pass_rates)) (list(&forecast.reading)) },
        list(&forecast.limits),
        table::table(forecast.baseline, &tables::forecast::settings(forecast)),
        reading(),
    ];
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (begin(&forecast.title, &picture::dark_style()))
            body {
                a.skip href="#main" { "Skip to the forecast" }
                header {
                    h1 { (forecast.title) }
                    p { (quoted(&forecast.log)) }
                    p { (quoted(&forecast.about)) }
                }
                nav aria-labelledby="contents" {
                    h2 #contents { "Contents" }
                    ol { @for (id, title) in SECTIONS { li { a href={ "#" (id) } { (title) } } } }
                }
                main #main tabindex="-1" {
                    @for ((id, title), body) in SECTIONS.into_iter().zip(bodies) {
                        section aria-labelledby=(id) {
                            h2 id=(id) { (title) }
                            (body)
                        }
                    }
                }
                footer { p { "Made by " code { "allot forecast" } ", from the log alone." } }
            }
        }
    };
    // Names of files and policies may have characters that turn the text around them.
    safe(&page.into_string()).into_owned()
}

/// Returns sentences as a list.
fn list(sentences: &[String]) -> Markup {
    html! {
        @if !sentences.is_empty() {
            ul { @for sentence in sentences { li { (quoted(sentence)) } } }
        }
    }
}

fn reading() -> Markup {
    html! {
        dl {
            dt { "Learning as much" }
            dd {
                "Each policy is run on the rollouts of the log. The model of the log does not learn, so another number stands for \
                 learning: independent lessons. In an update, a prompt's lesson is the sum over its rollouts of the advantage times \
                 the surprise, which is the verdict less what the other rollouts let expect. The square of the sum of all lessons \
                 over the sum of their squares is the number of equally strong lessons with the same effect. A group whose rollouts \
                 are all right or all wrong adds nothing."
            }
            dt { "Rollouts, tokens, operations" }
            dd {
                "Tokens are generated tokens. Operations are told for each parameter P of a model: 2 for a token that is read or \
                 generated, 6 for one that is trained on, a prompt with each of its answers."
            }
            dt { "Rollouts for 1,000 with an advantage" }
            dd {
                "counts each rollout that was trained on with an advantage other than 0, in each update on it. It says how much is \
                 wasted, and not how much is learned: it ranked policies far worse than lessons did."
            }
            dt { "Fewer and more" }
            dd {
                "“1.50× fewer” means that the baseline pays 1.50 times what the policy pays, “1.50× more” that the policy pays 1.50 \
                 times what the baseline pays."
            }
            dt { "Intervals" }
            dd {
                "hold 95\u{a0}%, by resampling prompts: as if other prompts had been drawn from where these are from. They do not \
                 have the error of the forecast itself, which is under “What the log cannot tell”, nor that of another model."
            }
        }
    }
}
