//! Uses of the rollouts: one bar for each arm, in shares of the rollouts sampled.

use super::legend::{self, Entry, Mark};
use super::panel::{Frame, Panel, Span};
use super::sheet::{Anchor, Sheet, width};
use super::{Size, shared};
use crate::colour::{self, fate};
use crate::history::Fates;
use crate::number;
use crate::report::Report;

/// Returns the parts of a bar from the left: name, colour, rollouts.
fn pieces(fates: &Fates) -> [(&'static str, &'static str, u64); 7] {
    [
        ("learned from", fate::LEARNED, fates.learned),
        ("all right", fate::RIGHT, fates.all_right()),
        ("all wrong", fate::WRONG, fates.all_wrong()),
        ("mixed, discarded or equal", fate::MIXED, fates.released_mixed + fates.trained_equal),
        ("stale", fate::STALE, fates.stale),
        ("no verdict", fate::UNSCORABLE, fates.unscorable),
        ("held at the end", fate::HELD, fates.held),
    ]
}

/// Parts above this share are labelled if the label fits.
const LABELLED: f64 = 0.06;

/// Draws the figure; `None` if no rollout was sampled.
pub fn draw(report: &Report, size: Size) -> Option<String> {
    let uses: Vec<_> = report.uses.iter().filter(|u| u.fates.total() > 0).collect();
    if uses.is_empty() {
        return None;
    }
    let occurring = |i: usize| uses.iter().any(|u| pieces(&u.fates)[i].2 > 0);
    let kinds = pieces(&Fates::default());
    let entries: Vec<Entry> = (0..kinds.len())
        .filter(|i| occurring(*i))
        .map(|i| Entry { name: kinds[i].0.to_owned(), mark: Mark::Box(kinds[i].1) })
        .collect();
    let above = legend::rows(None, (0.0, 0.0), size.width() - 16.0, &entries) + 10.0;
    let names = uses.iter().filter_map(|u| report.arms.get(u.arm)).map(|a| a.name.as_str());
    let (left, each) = match size {
        Size::Wide => (legend::left_of(names, 34.0, 250.0), 36.0),
        Size::Narrow => (14.0, 52.0),
    };
    let frame =
        Frame { left, top: above, width: size.width() - left - 26.0, height: each * uses.len() as f64 };
    let sheet = shared(Sheet::new(size.width(), frame.top + frame.height + 46.0));
    let panel = Panel::new(&sheet, frame, Span::all_shares(), Span::rows(uses.len()))?;
    panel.below("share of the rollouts sampled");
    let mut sheet = sheet.borrow_mut();
    legend::rows(Some(&mut sheet), (8.0, 0.0), size.width() - 16.0, &entries);
    for (row, used) in uses.iter().enumerate() {
        let ink = colour::of(report.baseline, used.arm);
        let name = report.arms.get(used.arm).map_or("?", |a| a.name.as_str());
        let (_, middle) = panel.at(0.0, row as f64);
        let (y, mark) = match size {
            Size::Wide => {
                sheet.name((left - 24.0, middle), Anchor::End, name, left - 30.0);
                (middle, (left - 16.0, middle - 11.0))
            }
            Size::Narrow => {
                sheet.bar((left - 1.0, middle - 24.0), (frame.width + 2.0, 19.0), "#ffffff");
                sheet.name((left + 14.0, middle - 15.0), Anchor::Start, name, frame.width - 14.0);
                (middle + 9.0, (left, middle - 20.0))
            }
        };
        let tall = if size == Size::Wide { 22.0 } else { 10.0 };
        sheet.bar(mark, (6.0, tall), ink.colour);
        let (mut from, total) = (0.0, used.fates.total());
        for (_, fill, rollouts) in pieces(&used.fates) {
            let share = number::share(rollouts, total);
            let (start, end) = (panel.at(from, 0.0).0, panel.at(from + share, 0.0).0);
            sheet.bar((start, y - 11.0), ((end - start - 0.8).max(0.4 * share.signum()), 22.0), fill);
            let label = format!("{:.0}\u{a0}%", share * 100.0);
            if share > LABELLED && end - start > width(&label) + 2.0 {
                let on = if colour::is_dark(fill) { "#ffffff" } else { colour::ON_LIGHT };
                sheet.text_in((f64::midpoint(start, end), y), Anchor::Middle, &label, on);
            }
            from += share;
        }
    }
    Some(sheet.finish(&format!(
        "Bars: where the rollouts of {} went, in shares of those sampled. The counts are in the tables.",
        super::arms(report)
    )))
}
