//! A grid as a page: a map of all trials. Nothing is compared, so there are no intervals, p-values or
//! verdicts.

use std::io;
use std::path::Path;

use maud::{DOCTYPE, html};

use super::{Writer, begin, picture, table};
use crate::figure;
use crate::tables::tuning::trials;
use crate::tuning::Tuning;

/// Writes the page, its figures and its table into a folder.
pub fn write_grid(tuning: &Tuning, folder: &Path) -> io::Result<()> {
    let (figures, tried) = (figure::of_grid(tuning), trials(tuning));
    let arms: Vec<&str> = tuning.arms.iter().map(|arm| arm.name.as_str()).collect();
    let many = tuning.arms.iter().map(|arm| arm.trials.len()).sum::<usize>();
    let title = format!("A grid of {}", arms.join(", "));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (begin(&title, &picture::dark_style()))
            body {
                header {
                    h1 { (title) }
                    p { (many) " settings, on " (tuning.seeds.len()) " tuning seeds" }
                }
                main #main tabindex="-1" {
                    p {
                        "A map, for looking at. Differences between its cells are not tested: of this many settings \
                         the best looks better than it is. What wins here has to win on fresh seeds."
                    }
                    @for figure in &figures { (picture::figure(figure)) }
                    (table::table(0, &tried))
                }
                footer { p { "Made by " code { "allot compare --grid" } ", from the records of the runs alone." } }
            }
        }
    };
    let mut writer = Writer::new(folder);
    writer.put("index.html", page.into_string().as_bytes())?;
    for figure in &figures {
        writer.figure(figure)?;
    }
    writer.put("tables/trials.csv", tried.csv().as_bytes())
}
