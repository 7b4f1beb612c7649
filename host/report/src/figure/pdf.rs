//! A figure as PDF 1.4, for a paper: the same lines and areas as in its SVG. Text becomes outlines, so that
//! no font has to be installed or embedded.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use resvg::tiny_skia::PathSegment;
use resvg::usvg::{Fill, Group, Node, Paint, Path, Stroke, Tree};

/// Points (72 per inch) per pixel (96 per inch).
const POINTS: f32 = 0.75;

/// Converts a drawing; `None` if it cannot be parsed, or contains more than paths in plain colours. Our
/// figures do not.
pub fn pdf(svg: &str) -> Option<Vec<u8>> {
    let tree = Tree::from_str(svg, &super::picture::options()).ok()?;
    let (width, height) = (POINTS * tree.size().width(), POINTS * tree.size().height());
    let mut sheet = Sheet::default();
    // PDF's y axis points up from the lower edge.
    _ = writeln!(sheet.marks, "{POINTS} 0 0 -{POINTS} 0 {} cm 1 j", number(height));
    sheet.group(tree.root())?;
    let mut states = String::new();
    for (i, opacity) in sheet.opacities.iter().enumerate() {
        _ = write!(states, "/A{i} <</ca {0} /CA {0}>> ", number(*opacity));
    }
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed.write_all(sheet.marks.as_bytes()).ok()?;
    let marks = packed.finish().ok()?;
    let page = format!(
        "<</Type /Page /Parent 2 0 R /MediaBox [0 0 {} {}] /Contents 4 0 R /Resources <</ExtGState <<{states}>>>>>>",
        number(width),
        number(height)
    );
    let stream = format!("<</Length {} /Filter /FlateDecode>>", marks.len());
    Some(file(&[
        ("<</Type /Catalog /Pages 2 0 R>>", None),
        ("<</Type /Pages /Kids [3 0 R] /Count 1>>", None),
        (&page, None),
        (&stream, Some(&marks)),
    ]))
}

/// Returns a file of objects, each a dictionary with an optional stream. The first one is the catalog.
fn file(objects: &[(&str, Option<&[u8]>)]) -> Vec<u8> {
    // Bytes above 127 in the second line mark the file as binary.
    let mut file = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n".to_vec();
    let mut places = Vec::new();
    for (i, (dictionary, stream)) in objects.iter().enumerate() {
        places.push(file.len());
        file.extend(format!("{} 0 obj\n{dictionary}\n", i + 1).bytes());
        if let Some(stream) = stream {
            file.extend(b"stream\n");
            file.extend(*stream);
            file.extend(b"\nendstream\n");
        }
        file.extend(b"endobj\n");
    }
    let (start, count) = (file.len(), objects.len() + 1);
    file.extend(format!("xref\n0 {count}\n0000000000 65535 f \n").bytes());
    for place in places {
        file.extend(format!("{place:010} 00000 n \n").bytes());
    }
    file.extend(format!("trailer\n<</Size {count} /Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n").bytes());
    file
}

/// The drawing so far, as PDF operators.
#[derive(Default)]
struct Sheet {
    marks: String,
    /// Opacities in use; each is a graphics state that operators refer to.
    opacities: Vec<f32>,
}

impl Sheet {
    fn group(&mut self, group: &Group) -> Option<()> {
        group.children().iter().try_for_each(|node| match node {
            Node::Group(group) => self.group(group),
            Node::Path(path) => self.path(path),
            Node::Text(text) => self.group(text.flattened()),
            Node::Image(_) => None,
        })
    }

    fn path(&mut self, path: &Path) -> Option<()> {
        let outline = path.data().clone().transform(path.abs_transform())?;
        if let Some(fill) = path.fill() {
            self.fill(fill)?;
            self.outline(&outline);
            self.marks.push_str("f\n");
        }
        if let Some(stroke) = path.stroke() {
            self.stroke(stroke)?;
            self.outline(&outline);
            self.marks.push_str("S\n");
        }
        Some(())
    }

    fn fill(&mut self, fill: &Fill) -> Option<()> {
        self.opacity(fill.opacity().get());
        let colour = colour(fill.paint())?;
        _ = writeln!(self.marks, "{colour} rg");
        Some(())
    }

    fn stroke(&mut self, stroke: &Stroke) -> Option<()> {
        self.opacity(stroke.opacity().get());
        let (colour, width) = (colour(stroke.paint())?, number(stroke.width().get()));
        let dashes: Vec<String> =
            stroke.dasharray().unwrap_or_default().iter().map(|dash| number(*dash)).collect();
        let offset = number(stroke.dashoffset());
        _ = writeln!(self.marks, "{colour} RG {width} w [{}] {offset} d", dashes.join(" "));
        Some(())
    }

    fn opacity(&mut self, opacity: f32) {
        let known = self.opacities.iter().position(|other| (other - opacity).abs() < 1e-4);
        let place = known.unwrap_or_else(|| {
            self.opacities.push(opacity);
            self.opacities.len() - 1
        });
        _ = writeln!(self.marks, "/A{place} gs");
    }

    fn outline(&mut self, outline: &resvg::tiny_skia::Path) {
        let mut at = (0.0, 0.0);
        for segment in outline.segments() {
            let from = at;
            let mut put = |points: &[(f32, f32)], operator: &str| {
                for (x, y) in points {
                    _ = write!(self.marks, "{} {} ", number(*x), number(*y));
                    at = (*x, *y);
                }
                self.marks.push_str(operator);
                self.marks.push('\n');
            };
            match segment {
                PathSegment::MoveTo(to) => put(&[(to.x, to.y)], "m"),
                PathSegment::LineTo(to) => put(&[(to.x, to.y)], "l"),
                PathSegment::QuadTo(by, to) => {
                    // PDF has only cubic curves: each handle is at two thirds of the way.
                    let handle = |(x, y): (f32, f32)| (x + (by.x - x) / 1.5, y + (by.y - y) / 1.5);
                    let handles = [handle(from), handle((to.x, to.y)), (to.x, to.y)];
                    put(&handles, "c");
                }
                PathSegment::CubicTo(one, two, to) => {
                    put(&[(one.x, one.y), (two.x, two.y), (to.x, to.y)], "c");
                }
                PathSegment::Close => put(&[], "h"),
            }
        }
    }
}

fn colour(paint: &Paint) -> Option<String> {
    let Paint::Color(colour) = paint else { return None };
    let parts = [colour.red, colour.green, colour.blue].map(|part| number(f32::from(part) / 255.0));
    Some(parts.join(" "))
}

/// Formats a number with at most three digits after the point.
fn number(value: f32) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
