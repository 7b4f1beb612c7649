//! Tables on a page, each in a scrolling frame, with a caption and row headers.

use maud::{Markup, html};

use crate::colour;
use crate::tables::{Cell, Shape, Table};

/// Tables with more rows than this are folded.
const LONG: usize = 16;

/// Returns a table with arms in their colours, or a sentence if it has no rows.
pub fn table(baseline: usize, table: &Table) -> Markup {
    let framed = html! {
        div class={ "scroll " (table.name) } role="region" tabindex="0"
            aria-labelledby={ "table-" (table.name) } { (whole(baseline, table)) }
    };
    html! {
        @if table.rows.is_empty() {
            p.empty { (table.title) ": nothing to show." }
        } @else if table.rows.len() > LONG {
            details open[table.name == "targets"] {
                summary { (table.title) ", " (table.rows.len()) " rows" }
                (framed)
            }
        } @else { (framed) }
    }
}

fn whole(baseline: usize, table: &Table) -> Markup {
    html! {
        table {
            caption #{ "table-" (table.name) } {
                strong { (table.title) } @if !table.note.is_empty() { " " span { (table.note) } }
            }
            thead {
                tr {
                    @for column in &table.columns {
                        @let class = (column.shape != Shape::Words).then_some("number");
                        th scope="col" class=[class] { (column.head) }
                    }
                }
            }
            tbody {
                @for row in &table.rows {
                    tr {
                        @for (i, (cell, column)) in row.iter().zip(&table.columns).enumerate() {
                            @let class = (column.shape != Shape::Words).then_some("number");
                            @if i == 0 {
                                th scope="row" class=[class] { (self::cell(baseline, cell)) }
                            } @else {
                                td class=[class] { (self::cell(baseline, cell)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cell(baseline: usize, cell: &Cell) -> Markup {
    match cell {
        Cell::Arm(place, name) => arm(baseline, *place, name),
        Cell::Hash(whole) => html! { code title=(whole) { (cell.words()) } },
        Cell::None(words, why) => html! { abbr title=(why) { (words) } },
        _ => {
            let (first, second) = cell.lines();
            html! { (first) @if let Some(second) = second { " " span.interval { (second) } } }
        }
    }
}

/// Returns an arm's name after a short piece of its line.
pub fn arm(baseline: usize, place: usize, name: &str) -> Markup {
    let ink = colour::of(baseline, place);
    // A short name is not wrapped.
    let class = if name.chars().count() > 24 { "arm long" } else { "arm short" };
    html! {
        span class=(class) {
            svg.ink viewBox="0 0 22 10" width="22" height="10" aria-hidden="true" {
                path d="M0 5L22 5" stroke=(ink.colour) stroke-width="4" stroke-dasharray=[ink.dash] {}
            }
            (name)
        }
    }
}
