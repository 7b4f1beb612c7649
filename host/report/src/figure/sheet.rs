//! A sheet of SVG: lines, areas, boxes, dots and text at positions in pixels.
//!
//! [`Paper`] is the same sheet for plotters, in tenths of a pixel. Non-finite numbers are not drawn.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::rc::Rc;

use allot_allocation::shown;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

use crate::colour::{self, Ink};

/// A sheet with several owners.
pub type Shared = Rc<RefCell<Sheet>>;

/// The drawing so far.
#[derive(Debug)]
pub struct Sheet {
    width: f64,
    height: f64,
    body: String,
}

/// Style of a line.
#[derive(Clone, Copy, Debug)]
pub struct Stroke<'a> {
    /// Its colour.
    pub colour: &'a str,
    /// Its width.
    pub width: f64,
    /// Its dashes.
    pub dash: Option<&'a str>,
}

/// Position of text relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// To the right of the point.
    Start,
    /// Centred on the point.
    Middle,
    /// To the left of the point.
    End,
}

/// Size of all text except titles of panels.
pub const SIZE: f64 = 12.0;

impl Sheet {
    /// Returns an empty sheet.
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// Draws a line through points.
    pub fn line(&mut self, points: &[(f64, f64)], stroke: Stroke) {
        let path = path(points);
        if path.is_empty() || points.len() < 2 {
            return;
        }
        let Stroke { colour, width, dash } = stroke;
        let dash = dash.map(|d| format!(r#" stroke-dasharray="{d}""#)).unwrap_or_default();
        let round = r#"stroke-linejoin="round""#;
        let width = short(width);
        _ = writeln!(
            self.body,
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dash} {round}/>"#
        );
    }

    /// Fills the polygon of points.
    pub fn area(&mut self, points: &[(f64, f64)], colour: &str, opacity: f64) {
        let path = path(points);
        if !path.is_empty() {
            let opacity = short(opacity);
            _ = writeln!(self.body, r#"<path d="{path}Z" fill="{colour}" fill-opacity="{opacity}"/>"#);
        }
    }

    /// Draws a box, given its corner and size.
    pub fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
        if [x, y, width, height].iter().all(|v| v.is_finite()) && width > 0.0 && height > 0.0 {
            let (x, y, width, height) = (short(x), short(y), short(width), short(height));
            _ = writeln!(
                self.body,
                r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}"/>"#
            );
        }
    }

    /// Draws a dot.
    pub fn dot(&mut self, (x, y): (f64, f64), radius: f64, colour: &str) {
        if x.is_finite() && y.is_finite() {
            let (x, y, radius) = (short(x), short(y), short(radius));
            _ = writeln!(
                self.body,
                r##"<circle cx="{x}" cy="{y}" r="{radius}" fill="{colour}" stroke="#ffffff" stroke-width="1"/>"##
            );
        }
    }

    /// Draws an arm's dot, or a ring if its line is dashed.
    pub fn mark(&mut self, (x, y): (f64, f64), radius: f64, ink: Ink) {
        self.dot((x, y), radius, ink.colour);
        if ink.dash.is_some() {
            self.dot((x, y), radius - 2.5, "#ffffff");
        }
    }

    /// Draws text, vertically centred on its point.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, text: &str) {
        self.text_in(at, anchor, text, colour::TEXT);
    }

    /// Draws text in a colour.
    pub fn text_in(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str, colour: &str) {
        self.write(x, y + 0.36 * SIZE, SIZE, anchor, colour, text, None);
    }

    /// Draws text, shortened in the middle if it is wider than `widest`. A tooltip shows all of it.
    pub fn name(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str, widest: f64) {
        let shown = clip(text, widest);
        let whole = (shown != text).then_some(text);
        self.write(x, y + 0.36 * SIZE, SIZE, anchor, colour::TEXT, &shown, whole);
    }

    #[expect(clippy::too_many_arguments, reason = "what text is, in one place")]
    fn write(
        &mut self,
        x: f64,
        baseline: f64,
        size: f64,
        anchor: Anchor,
        colour: &str,
        text: &str,
        whole: Option<&str>,
    ) {
        if !(x.is_finite() && baseline.is_finite()) || text.is_empty() {
            return;
        }
        let (x, y, size) = (short(x), short(baseline), short(size));
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let title = whole.map(|w| format!("<title>{}</title>", escaped(w))).unwrap_or_default();
        let text = escaped(text);
        _ = writeln!(
            self.body,
            r#"<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{anchor}>{title}{text}</text>"#
        );
    }

    /// Returns the whole SVG. `told` describes it for screen readers.
    pub fn finish(&self, told: &str) -> String {
        let (width, height) = (short(self.width), short(self.height));
        let mut svg = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" "#
        );
        _ = writeln!(svg, r#"height="{height}" role="img" aria-label="{}" "#, escaped(told));
        svg.push_str(
            r#"font-family="'Noto Sans', 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif">"#,
        );
        _ = writeln!(svg, r##"<rect width="{width}" height="{height}" fill="#ffffff"/>"##);
        svg.push_str(&self.body);
        svg.push_str("</svg>\n");
        svg
    }
}

/// Estimates the width of text in Noto Sans, which is rather wide.
pub fn width(text: &str) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | 'I' | ' ' | '\u{a0}' => 0.29,
            'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '-' | '/' => 0.38,
            'm' | 'M' | 'W' | 'w' | '%' | '@' | '—' => 0.90,
            'A'..='Z' | '…' => 0.68,
            _ if c.is_ascii() => 0.575,
            '–' | '×' | '−' | '·' => 0.57,
            _ => 1.0,
        })
        .sum();
    em * SIZE
}

/// Shortens text to a width by removing its middle, since names differ at their ends.
pub fn clip(text: &str, widest: f64) -> String {
    if width(text) <= widest {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    for kept in (2..letters.len()).rev() {
        let (head, tail) = (kept.div_ceil(2), kept / 2);
        let cut: String =
            letters[..head].iter().chain(&['…']).chain(&letters[letters.len() - tail..]).collect();
        if width(&cut) <= widest {
            return cut;
        }
    }
    "…".to_owned()
}

/// Escapes text for XML and HTML.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\t' | '\n' => safe.push(c),
            c if shown::steers(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

fn path(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (x, y) in points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
        path.push(if path.is_empty() { 'M' } else { 'L' });
        _ = write!(path, "{} {}", short(*x), short(*y));
    }
    path
}

/// Formats a number with at most two digits after the point.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// The sheet as a backend for plotters.
pub struct Paper(pub Shared);

/// Pixels of plotters, which are whole numbers, per pixel of the sheet.
pub const FINE: f64 = 10.0;

fn ours((x, y): BackendCoord) -> (f64, f64) {
    (f64::from(x) / FINE, f64::from(y) / FINE)
}

fn hex(colour: BackendColor) -> String {
    let (r, g, b) = colour.rgb;
    format!("#{r:02x}{g:02x}{b:02x}")
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Paper {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        let sheet = self.0.borrow();
        ((sheet.width * FINE) as u32, (sheet.height * FINE) as u32)
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, _: BackendCoord, _: BackendColor) -> Drawn {
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        if style.color().alpha > 0.0 {
            let points: Vec<_> = path.into_iter().map(ours).collect();
            let width = f64::from(style.stroke_width()) / FINE;
            self.0.borrow_mut().line(&points, Stroke { colour: &hex(style.color()), width, dash: None });
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn {
        let (x, y) = ours(at);
        let size = style.size() / FINE;
        let baseline = match style.anchor().v_pos {
            VPos::Top => y + 0.8 * size,
            VPos::Center => y + 0.36 * size,
            VPos::Bottom => y - 0.2 * size,
        };
        let anchor = match style.anchor().h_pos {
            HPos::Left => Anchor::Start,
            HPos::Center => Anchor::Middle,
            HPos::Right => Anchor::End,
        };
        self.0.borrow_mut().write(x, baseline, size, anchor, &hex(style.color()), text, None);
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        Ok(((width(text) * style.size() / SIZE) as u32, style.size() as u32))
    }
}
