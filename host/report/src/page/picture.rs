//! Figures on a page, with both sizes, a caption and a link to download the drawing; and the axis switch.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};

use crate::colour;
use crate::figure::{self, Figure};
use crate::report::Report;

/// Returns a figure, or the sentence that says why there is none.
pub fn figure(figure: &Figure) -> Markup {
    html! {
        figure #{ "figure-" (figure.name) } {
            h3 { (figure.title) }
            @match &figure.drawing {
                Ok(drawing) => {
                    div.wide { (PreEscaped(&drawing.wide)) }
                    div.narrow { (PreEscaped(&drawing.narrow)) }
                    figcaption {
                        (figure.caption) " "
                        a.download download={ (figure.name) ".svg" } href=(link(&drawing.wide)) {
                            "Download as SVG" span.unseen { ": " (figure.title) }
                        }
                    }
                }
                Err(why) => p.empty { (why) },
            }
        }
    }
}

/// Returns the figures of accuracy against each axis, of which one is visible.
pub fn switch(report: &Report) -> Markup {
    html! {
        div.switch {
            @if report.axes.len() > 1 {
                fieldset {
                    legend { "Accuracy against" }
                    @for axis in &report.axes {
                        span.choice {
                            input type="radio" name="axis" id={ "axis-" (axis.key()) } value=(axis.key())
                                checked[Some(axis) == report.axes.first()] autocomplete="off";
                            label for={ "axis-" (axis.key()) } { (axis.words()) }
                        }
                    }
                }
            }
            @for axis in &report.axes {
                div class={ "panel panel-" (axis.key()) } { (figure(&figure::accuracy(report, *axis))) }
            }
            @if report.axes.is_empty() { p.empty { "The runs have no axis in common." } }
        }
    }
}

/// Returns the style of the axis switch.
pub fn switch_style(report: &Report) -> String {
    if report.axes.len() < 2 {
        return String::new();
    }
    let mut style = String::from("@supports selector(:has(*)) { .panel { display: none } ");
    for axis in &report.axes {
        let key = axis.key();
        _ = write!(style, ".switch:has(#axis-{key}:checked) .panel-{key} {{ display: block }} ");
    }
    style.push('}');
    style
}

/// Returns the style that adapts drawings to a dark page. It applies only on the page: downloaded drawings
/// stay as they are.
pub fn dark_style() -> String {
    let mut style = String::from("@media screen and (prefers-color-scheme: dark) { ");
    for (light, dark) in colour::DARK {
        _ = write!(
            style,
            "svg [fill=\"{light}\"] {{ fill: {dark} }} svg [stroke=\"{light}\"] {{ stroke: {dark} }} "
        );
    }
    let (light, dark) = (colour::GROUND, colour::DARK_GROUND);
    _ = write!(style, "svg rect[fill=\"{light}\"], svg circle[fill=\"{light}\"] {{ fill: {dark} }} ");
    _ = write!(style, "svg circle[stroke=\"{light}\"] {{ stroke: {dark} }} }}");
    style
}

/// Encodes a drawing as a data URL. Only characters not allowed in a URL or an attribute are encoded.
fn link(svg: &str) -> String {
    let mut link = String::from("data:image/svg+xml;charset=utf-8,");
    for byte in svg.bytes() {
        match byte {
            b'\n' | b'"' | b'#' | b'%' | b'<' | b'>' | b'{' | b'}' | b'|' | b'\\' | b'^' | b'`' | b'&' => {
                _ = write!(link, "%{byte:02X}");
            }
            0..=31 | 127..=255 => _ = write!(link, "%{byte:02X}"),
            byte => link.push(char::from(byte)),
        }
    }
    link
}
