//! Codecs of other libraries that zarrfs knows by name, and does not decode.
//!
//! An error can then say where a codec comes from. Codecs that zarrfs decodes are rows of
//! [`table`](super::table) instead. `docs/formats.md` lists both.

/// A codec that zarrfs does not decode.
#[derive(Debug, Clone, Copy)]
pub struct ForeignCodec {
    /// Its identifier in Zarr 2.
    pub id: &'static str,
    /// The Python library that has it.
    pub library: &'static str,
    /// Why zarrfs does not decode it.
    pub reason: &'static str,
}

const NUMCODECS: &str = "numcodecs";
const IMAGECODECS: &str = "imagecodecs";

/// Reasons that several codecs share.
const IMAGE: &str = "zarrfs does not read this format of images";
const COMPRESSOR: &str = "zarrfs does not have this compressor";
const BLOSC2: &str = "zarrfs does not have Blosc 2";
const RICE: &str = "zarrfs decodes this Rice code in GRIB messages alone";
const ASTRONOMY: &str = "zarrfs does not have this compressor of FITS";

const fn numcodecs(id: &'static str, reason: &'static str) -> ForeignCodec {
    ForeignCodec { id, library: NUMCODECS, reason }
}

const fn imagecodecs(id: &'static str, reason: &'static str) -> ForeignCodec {
    ForeignCodec { id, library: IMAGECODECS, reason }
}

/// All such codecs.
pub const FOREIGN: &[ForeignCodec] = &[
    numcodecs("vlen-array", "Zarr 3 has no elements that are arrays"),
    imagecodecs("imagecodecs_aec", RICE),
    imagecodecs("imagecodecs_apng", IMAGE),
    imagecodecs("imagecodecs_avif", IMAGE),
    imagecodecs("imagecodecs_b2nd", BLOSC2),
    imagecodecs("imagecodecs_blosc2", BLOSC2),
    imagecodecs("imagecodecs_bmp", IMAGE),
    imagecodecs("imagecodecs_ccittfax3", IMAGE),
    imagecodecs("imagecodecs_ccittfax4", IMAGE),
    imagecodecs("imagecodecs_ccittrle", IMAGE),
    imagecodecs("imagecodecs_chunked", COMPRESSOR),
    imagecodecs("imagecodecs_cms", "zarrfs does not convert colours"),
    imagecodecs("imagecodecs_dds", IMAGE),
    imagecodecs("imagecodecs_dicomrle", IMAGE),
    imagecodecs("imagecodecs_eer", IMAGE),
    imagecodecs("imagecodecs_exr", IMAGE),
    imagecodecs("imagecodecs_gif", IMAGE),
    imagecodecs("imagecodecs_hcomp", ASTRONOMY),
    imagecodecs("imagecodecs_heif", IMAGE),
    imagecodecs("imagecodecs_htj2k", IMAGE),
    imagecodecs("imagecodecs_jpegls", IMAGE),
    imagecodecs("imagecodecs_jpegxr", IMAGE),
    imagecodecs("imagecodecs_jpegxs", IMAGE),
    imagecodecs("imagecodecs_lerc", COMPRESSOR),
    imagecodecs("imagecodecs_ljpeg", IMAGE),
    imagecodecs("imagecodecs_lzfse", COMPRESSOR),
    imagecodecs("imagecodecs_lzham", COMPRESSOR),
    imagecodecs("imagecodecs_lzo", COMPRESSOR),
    imagecodecs("imagecodecs_meshopt", COMPRESSOR),
    imagecodecs("imagecodecs_openzl", COMPRESSOR),
    imagecodecs("imagecodecs_packints", "zarrfs does not unpack integers of any number of bits"),
    imagecodecs("imagecodecs_pcx", IMAGE),
    imagecodecs("imagecodecs_pglz", COMPRESSOR),
    imagecodecs("imagecodecs_pixarlog", COMPRESSOR),
    imagecodecs("imagecodecs_plio", ASTRONOMY),
    imagecodecs("imagecodecs_rcomp", ASTRONOMY),
    imagecodecs("imagecodecs_rgbe", IMAGE),
    imagecodecs("imagecodecs_sperr", COMPRESSOR),
    imagecodecs("imagecodecs_sz3", COMPRESSOR),
    imagecodecs("imagecodecs_szip", RICE),
    imagecodecs("imagecodecs_tga", IMAGE),
    imagecodecs("imagecodecs_tiff", IMAGE),
    imagecodecs("imagecodecs_ultrahdr", IMAGE),
    imagecodecs("imagecodecs_wic", IMAGE),
    imagecodecs("imagecodecs_zstd1", COMPRESSOR),
];

/// Returns the codec with this name in Zarr 2 or 3.
pub fn find(name: &str) -> Option<&'static ForeignCodec> {
    let id = name.strip_prefix("numcodecs.").unwrap_or(name);
    FOREIGN.iter().find(|codec| codec.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn a_codec_that_is_not_decoded_has_no_row() {
        for codec in FOREIGN {
            assert!(table::find_id(codec.id).is_none(), "{}", codec.id);
            assert!(table::find(codec.id).is_none(), "{}", codec.id);
            let same = FOREIGN.iter().filter(|other| other.id == codec.id);
            assert_eq!(same.count(), 1, "{}", codec.id);
        }
    }
}
