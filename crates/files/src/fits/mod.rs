//! FITS: header and data units (HDU), each a header of cards and elements in big-endian order.
//!
//! Each image is an array: `PRIMARY` the first one, and the others by their `EXTNAME`. Its axes are
//! in C order, as in astropy. Tables are left out, and images that are compressed by tiles are not
//! read.
//!
//! <https://fits.gsfc.nasa.gov/fits_standard.html>

mod cards;

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::described::{Described, DescribedArray, bytes_codec, codec, is_node_name, zero_of};
use crate::image::{self, ImageAxis, unit};
use crate::json::double;
use crate::pieces::{self, Stored};
use crate::source::SourceFile;
use cards::{Cards, in_blocks};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::limits;
use zarrfs_codec::json::Object;

/// The name of the first image, as astropy shows it.
const PRIMARY: &str = "PRIMARY";

/// Describes all images of a file.
pub fn scan(file: &SourceFile, described: &mut Described) -> Result<()> {
    let mut units = DescribedUnits::default();
    let mut at = 0;
    let mut count = 0_usize;
    while at < file.len() {
        let cards = match Cards::read(file, at) {
            Ok(cards) => cards,
            // What follows the last unit is no matter of the images before.
            Err(error) if count > 0 && error.is_of_data() => {
                described.omit("", &format!("bytes after unit {count} that are no unit of FITS"));
                break;
            }
            Err(error) => return Err(error),
        };
        if count > 0 && cards.text("XTENSION").is_none() {
            described.omit("", &format!("bytes after unit {count} that are no unit of FITS"));
            break;
        }
        if limits::NODES.is_exceeded_by(count) {
            return Err(Error::too_large(format!("units in the file, {}", limits::NODES)));
        }
        let unit = Unit { offset: cards.end, cards, number: count };
        at = unit.offset.saturating_add(in_blocks(unit.len()?));
        units.describe(&unit, file, described)?;
        count = count.saturating_add(1);
    }
    described.group("", units.attributes)
}

/// The units that were described.
#[derive(Debug, Default)]
struct DescribedUnits {
    names: HashSet<String>,
    /// The lengths of dimensions.
    lens: HashMap<String, u64>,
    /// The attributes of the root.
    attributes: Object,
}

/// A header and its data.
#[derive(Debug)]
struct Unit {
    cards: Cards,
    /// Where the data begin.
    offset: u64,
    /// Its number, from 0.
    number: usize,
}

impl DescribedUnits {
    fn describe(
        &mut self,
        unit: &Unit,
        file: &SourceFile,
        described: &mut Described,
    ) -> Result<()> {
        let name = self.name(unit);
        let kind = unit.cards.text("XTENSION").unwrap_or("IMAGE");
        let is_tiled = unit.cards.is_true("ZIMAGE");
        if unit.cards.is_true("GROUPS") && unit.cards.integer("NAXIS1") == Some(0) {
            described.omit(&name, "random groups of FITS");
        } else if is_tiled {
            let mut shape = unit.cards.lens("ZNAXIS", "ZNAXIS")?;
            shape.reverse();
            let by = unit.cards.text("ZCMPTYPE").unwrap_or_default();
            let why = format!("an image of FITS that is compressed by tiles ({by})");
            let array = self.array(unit, &name, shape);
            described.unread(&name, &array, &why)?;
        } else if kind != "IMAGE" {
            let what = if kind == "TABLE" || kind == "BINTABLE" { "a table" } else { "a unit" };
            described.omit(&name, &format!("{what} of FITS ({kind})"));
        } else {
            let mut shape = unit.cards.lens("NAXIS", "NAXIS")?;
            if shape.is_empty() {
                if unit.number == 0 {
                    self.attributes.extend(unit.cards.shown());
                } else {
                    described.omit(&name, "a unit of FITS without elements");
                }
                return Ok(());
            }
            shape.reverse();
            let array = self.array(unit, &name, shape);
            if let Some(axes) = unit.axes(array.shape.len())
                && self.attributes.get("ome").is_none()
            {
                self.attributes.extend(image::attributes(&name, &axes));
            }
            let result = unit.place(&name, array.clone(), file, described);
            described.or_unread(&name, array, result)?;
        }
        Ok(())
    }

    /// Returns the array of a unit without its type. A dimension that has another length in a unit
    /// before gets the name of this one, too.
    fn array(&mut self, unit: &Unit, path: &str, shape: Vec<u64>) -> DescribedArray {
        let mut array = unit.array(shape);
        let lens = array.shape.iter();
        for (name, len) in array.dimension_names.iter_mut().flatten().flatten().zip(lens) {
            if self.lens.get(name).is_some_and(|other| other != len) {
                *name = format!("{name}_{path}");
            }
            self.lens.insert(name.clone(), *len);
        }
        array
    }

    /// Returns the name of a unit, which no other has.
    fn name(&mut self, unit: &Unit) -> String {
        let own = unit.cards.text("EXTNAME").map(str::trim).filter(|name| is_node_name(name));
        let numbered =
            if unit.number == 0 { PRIMARY.to_owned() } else { format!("HDU{}", unit.number) };
        let mut name = own.map_or(numbered, str::to_owned);
        let version = unit.cards.integer("EXTVER").filter(|version| *version > 1);
        if let (Some(own), Some(version)) = (own, version) {
            name = format!("{own}_{version}");
        }
        if self.names.contains(&name) {
            name = format!("{name}_HDU{}", unit.number);
        }
        self.names.insert(name.clone());
        name
    }
}

impl Unit {
    /// Returns the bytes of the data.
    fn len(&self) -> Result<u64> {
        let mut lens = self.cards.lens("NAXIS", "NAXIS")?;
        if lens.is_empty() {
            return Ok(0);
        }
        if self.cards.is_true("GROUPS") && lens.first() == Some(&0) {
            lens.remove(0);
        }
        let count = |name: &str, without: u64| {
            let found = self.cards.integer(name).map(u64::try_from);
            found.and_then(std::result::Result::ok).unwrap_or(without)
        };
        let bits = self.cards.integer("BITPIX").unwrap_or_default().unsigned_abs();
        let items = lens.iter().try_fold(1_u64, |all, len| all.checked_mul(*len));
        let all = items.and_then(|items| {
            let all = items.checked_add(count("PCOUNT", 0))?;
            all.checked_mul(count("GCOUNT", 1))?.checked_mul(bits / 8)
        });
        all.ok_or_else(|| Error::corrupt("a unit of FITS has more than 2^64 bytes"))
    }

    /// Returns the array without its type.
    fn array(&self, shape: Vec<u64>) -> DescribedArray {
        let names = self.names(shape.len());
        DescribedArray {
            chunk_shape: shape.iter().map(|len| (*len).max(1)).collect(),
            shape,
            data_type: json!("uint8"),
            fill_value: json!(0),
            dimension_names: Some(names.into_iter().map(Some).collect()),
            attributes: self.cards.shown(),
            ..DescribedArray::default()
        }
    }

    /// Returns the names of the axes, the slowest first: `CTYPE` if that is a name alone.
    fn names(&self, rank: usize) -> Vec<String> {
        let typed = |number: usize| {
            let name = self.cards.text(&format!("CTYPE{number}"))?;
            let is_name = !name.is_empty() && !name.contains('-') && !name.contains('/');
            is_name.then(|| name.to_owned())
        };
        let mut names: Vec<String> = Vec::new();
        for number in 1..=rank {
            let plain = ["x", "y", "z"].get(number.saturating_sub(1));
            let plain = plain.map_or_else(|| format!("axis{number}"), |name| (*name).to_owned());
            let name = typed(number).unwrap_or(plain);
            names.push(if names.contains(&name) { format!("{name}{number}") } else { name });
        }
        names.reverse();
        names
    }

    /// Returns the places along the axes, the slowest first, if the header has a linear one for
    /// each.
    fn axes(&self, rank: usize) -> Option<Vec<ImageAxis>> {
        let names = self.names(rank);
        let axis = |(name, number): (String, usize)| {
            let card = |name: &str| self.cards.number(&format!("{name}{number}"));
            let kind = self.cards.text(&format!("CTYPE{number}")).unwrap_or_default();
            let (step, start) = (card("CDELT")?, card("CRVAL").unwrap_or_default());
            let reference = card("CRPIX").unwrap_or(1.0);
            let own = self.cards.text(&format!("CUNIT{number}"));
            let of_space = matches!(name.as_str(), "x" | "y" | "z");
            let of_time = matches!(name.as_str(), "t" | "time");
            let kind = if kind.contains('-') {
                return None;
            } else if of_space {
                Some("space")
            } else {
                of_time.then_some("time")
            };
            let start = start - (reference - 1.0) * step;
            Some(ImageAxis { name, kind, unit: own.map(unit), step: Some(step), start })
        };
        names.into_iter().zip((1..=rank).rev()).map(axis).collect()
    }

    fn place(
        &self,
        name: &str,
        mut array: DescribedArray,
        file: &SourceFile,
        described: &mut Described,
    ) -> Result<()> {
        let bits = self.cards.integer("BITPIX").unwrap_or_default();
        let (data_type, item_len) = match bits {
            8 => ("uint8", 1),
            16 => ("int16", 2),
            32 => ("int32", 4),
            64 => ("int64", 8),
            -32 => ("float32", 4),
            -64 => ("float64", 8),
            other => return Err(Error::corrupt(format!("BITPIX is {other}"))),
        };
        (array.data_type, array.fill_value) = (json!(data_type), zero_of(data_type));
        self.scale(&mut array, data_type)?;
        array.codecs.push(bytes_codec(true));
        let shape = array.shape.clone();
        let place = Stored { shape: &shape, item_len, offset: self.offset, is_reversed: false };
        pieces::check_end(place, file)?;
        pieces::describe(described, name, array, place)
    }

    /// Applies the scale: integers without a sign and signed bytes are stored with an offset, and
    /// other scales become attributes of CF.
    fn scale(&self, array: &mut DescribedArray, stored: &str) -> Result<()> {
        let scale = self.cards.number("BSCALE").unwrap_or(1.0);
        let zero = self.cards.get("BZERO").cloned().unwrap_or_else(|| json!(0));
        let blank = self.cards.integer("BLANK").filter(|_| !stored.starts_with("float"));
        let is_one = scale.to_bits() == 1_f64.to_bits();
        // numcodecs takes the stored bytes for elements of `astype`, so it has their order.
        let of_offset = match (stored, zero.as_f64()) {
            ("uint8", Some(-128.0)) => Some(("int8", "|i1", "|u1", -128_i64)),
            ("int16", Some(32_768.0)) => Some(("uint16", "<u2", ">i2", 32_768)),
            ("int32", Some(2_147_483_648.0)) => Some(("uint32", "<u4", ">i4", 2_147_483_648)),
            ("int64", Some(zero)) if is_one && zero.to_bits() == 2_f64.powi(63).to_bits() => {
                return Err(Error::unsupported("unsigned integers of 8 bytes in FITS"));
            }
            _ => None,
        };
        if let Some((data_type, decoded, encoded, offset)) = of_offset.filter(|_| is_one) {
            array.data_type = json!(data_type);
            let configuration =
                json!({"offset": offset, "scale": 1, "dtype": decoded, "astype": encoded});
            array.codecs.push(codec("numcodecs.fixedscaleoffset", configuration));
            if let Some(blank) = blank {
                array
                    .attributes
                    .insert("_FillValue".to_owned(), json!(blank.saturating_add(offset)));
            }
            return Ok(());
        }
        let zero = zero.as_f64().unwrap_or_default();
        if !is_one || zero != 0.0 {
            array.attributes.insert("scale_factor".to_owned(), double(scale));
            array.attributes.insert("add_offset".to_owned(), double(zero));
        }
        if let Some(blank) = blank {
            array.attributes.insert("_FillValue".to_owned(), Value::from(blank));
        }
        Ok(())
    }
}
