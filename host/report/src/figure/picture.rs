//! A figure as PNG, at twice its size, with our own font: the same picture on every machine.

use std::sync::{Arc, OnceLock};

use png::{BitDepth, ColorType, Encoder, Filter};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

/// Pixels of the picture per pixel of the drawing.
const SCALE: f32 = 2.0;

/// Renders a drawing; `None` if it cannot be parsed. Our figures can.
pub fn png(svg: &str) -> Option<Vec<u8>> {
    let tree = Tree::from_str(svg, &options()).ok()?;
    let size = tree.size();
    let (width, height) = ((size.width() * SCALE).ceil(), (size.height() * SCALE).ceil());
    let mut pixels = Pixmap::new(width as u32, height as u32)?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    packed(pixels).ok()
}

/// Packs pixels without a filter, which suits areas of one colour: as small as with the best of all filters for each line, in a
/// third of the time.
fn packed(pixels: Pixmap) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, pixels.width(), pixels.height());
    encoder.set_color(ColorType::Rgba);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_filter(Filter::NoFilter);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels.take_demultiplied())?;
    writer.finish()?;
    Ok(bytes)
}

const FAMILY: &str = "Noto Sans";

/// Options for parsing a drawing, with our own font for its text.
pub(super) fn options() -> Options<'static> {
    Options { fontdb: fonts(), font_family: FAMILY.to_owned(), ..Options::default() }
}

fn fonts() -> Arc<Database> {
    static FONTS: OnceLock<Arc<Database>> = OnceLock::new();
    let load = || {
        let mut fonts = Database::new();
        fonts.load_font_data(notosans::REGULAR_TTF.to_vec());
        fonts.set_sans_serif_family(FAMILY);
        Arc::new(fonts)
    };
    FONTS.get_or_init(load).clone()
}
