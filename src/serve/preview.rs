//! A picture of a slice of an array, as PNG.

use bytes::Bytes;

use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;
use crate::picture::Heat;
use crate::raster::{self, PictureLimits};
use crate::vfs::Vfs;
use crate::view::{GetChunk, ViewSource};

/// The limits of a picture. It decodes few chunks, since a page may have many pictures.
const LIMITS: PictureLimits =
    PictureLimits { columns: 384, rows: 288, height_of_row: 1, len: 48 << 20 };

/// Whether the node can be drawn, by its metadata.
pub fn is_possible(vfs: &Vfs, path: &NodePath) -> bool {
    let get: &GetChunk<'_> = &|_, _, _| Ok(None);
    ViewSource::new(vfs.hierarchy(), path, get).is_ok_and(|source| raster::is_possible(&source))
}

/// Draws the middle of the node at `names`, in the colours of `zarrfs info --plot`.
pub fn png(vfs: &Vfs, names: &[String]) -> Result<Bytes> {
    let path = NodePath::parse(&names.join("/")).map_err(|_| Error::not_found())?;
    if vfs.hierarchy().node(&path)?.is_none() {
        return Err(Error::not_found());
    }
    let chunks = vfs.chunks();
    let get = &|elements: &_, coords: &_, range: &_| chunks.get(elements, coords, range);
    let raster = raster::of(&ViewSource::new(vfs.hierarchy(), &path, get)?, None, &LIMITS)?;
    let size = |cells: u64| u32::try_from(cells).unwrap_or(u32::MAX);
    let heat = Heat::in_true_colors(&raster.values);
    let pixel = |value: &f64| {
        let color = heat.and_then(|heat| heat.rgb(*value));
        color.map_or([0; 4], |[red, green, blue]| [red, green, blue, u8::MAX])
    };
    let pixels: Vec<u8> = raster.values.iter().flat_map(pixel).collect();
    let mut png = Vec::new();
    let mut encoder =
        png::Encoder::new(&mut png, size(raster.across.cells), size(raster.down.cells));
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let encode = |error: png::EncodingError| Error::new(Kind::Internal, error.to_string());
    let mut writer = encoder.write_header().map_err(encode)?;
    writer.write_image_data(&pixels).map_err(encode)?;
    writer.finish().map_err(encode)?;
    Ok(png.into())
}
