//! The headers of NIfTI-1 (348 bytes) and NIfTI-2 (540 bytes), in either order of bytes.

use serde_json::{Value, json};

use crate::cursor::FixedFields;
use crate::json::{double, single};
use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::json::Object;

/// The lengths of headers.
pub const LEN_1: usize = 348;
pub const LEN_2: usize = 540;

/// Where fields are in a header.
#[derive(Debug)]
struct Places {
    datatype: usize,
    pixdim: usize,
    scl_slope: usize,
    toffset: usize,
    qform_code: usize,
    quatern: usize,
    srow: usize,
    /// Fields with a float each: name and place.
    floats: [(&'static str, usize); 6],
    /// Fields with a text: name, place and length.
    texts: [(&'static str, usize, usize); 3],
}

const PLACES_1: Places = Places {
    datatype: 70,
    pixdim: 76,
    scl_slope: 112,
    toffset: 136,
    qform_code: 252,
    quatern: 256,
    srow: 280,
    floats: [
        ("intent_p1", 56),
        ("intent_p2", 60),
        ("intent_p3", 64),
        ("cal_max", 124),
        ("cal_min", 128),
        ("slice_duration", 132),
    ],
    texts: [("descrip", 148, 80), ("aux_file", 228, 24), ("intent_name", 328, 16)],
};

const PLACES_2: Places = Places {
    datatype: 12,
    pixdim: 104,
    scl_slope: 176,
    toffset: 216,
    qform_code: 344,
    quatern: 352,
    srow: 400,
    floats: [
        ("intent_p1", 80),
        ("intent_p2", 88),
        ("intent_p3", 96),
        ("cal_max", 192),
        ("cal_min", 200),
        ("slice_duration", 208),
    ],
    texts: [("descrip", 240, 80), ("aux_file", 320, 24), ("intent_name", 508, 16)],
};

/// A header.
#[derive(Debug)]
pub struct NiftiHeader {
    fields: FixedFields,
    is_2: bool,
    places: &'static Places,
    /// Whether the elements are in the file of the header.
    pub is_single: bool,
}

impl NiftiHeader {
    /// Reads the header of a file.
    pub fn read(file: &SourceFile) -> Result<Self> {
        let bytes = file.read_up_to(0, LEN_2)?;
        let size: [u8; 4] = bytes.get(..4).and_then(|it| it.try_into().ok()).unwrap_or_default();
        let is_big = [[0, 0, 1, 92], [0, 0, 2, 28]].contains(&size);
        let is_2 = matches!(size, [0, 0, 2, 28] | [28, 2, 0, 0]);
        let len = if is_2 { LEN_2 } else { LEN_1 };
        let fields = FixedFields::new(file.read(0, len)?, is_big);
        let magic = if is_2 { fields.bytes(4, 3) } else { fields.bytes(344, 3) };
        let is_single = match magic {
            b"n+1" | b"n+2" => true,
            b"ni1" | b"ni2" => false,
            _ => return Err(Error::corrupt("the header of NIfTI does not have its magic string")),
        };
        let places = if is_2 { &PLACES_2 } else { &PLACES_1 };
        Ok(Self { fields, is_2, places, is_single })
    }

    /// Returns its length.
    pub fn len(&self) -> usize {
        if self.is_2 { LEN_2 } else { LEN_1 }
    }

    /// Whether numbers are in big-endian order.
    pub fn is_big(&self) -> bool {
        self.fields.is_big()
    }

    /// Returns a float of the number `index` from a place on, as a double.
    fn float(&self, at: usize, index: usize) -> f64 {
        if self.is_2 {
            self.fields.f64(at.saturating_add(index.saturating_mul(8)))
        } else {
            f64::from(self.fields.f32(at.saturating_add(index.saturating_mul(4))))
        }
    }

    /// Returns an integer that has 4 bytes in NIfTI-2 and 2 in NIfTI-1.
    fn code(&self, at: usize, index: usize) -> i32 {
        if self.is_2 {
            self.fields.i32(at.saturating_add(index.saturating_mul(4)))
        } else {
            i32::from(self.fields.i16(at.saturating_add(index.saturating_mul(2))))
        }
    }

    /// Returns the lengths of the axes, the fastest first.
    pub fn shape(&self) -> Result<Vec<u64>> {
        let len = |index: usize| {
            if self.is_2 {
                self.fields.i64(index.saturating_mul(8).saturating_add(16))
            } else {
                i64::from(self.fields.i16(index.saturating_mul(2).saturating_add(40)))
            }
        };
        let count = usize::try_from(len(0)).ok().filter(|count| (1..=7).contains(count));
        let count = count.ok_or_else(|| {
            Error::corrupt(format!("NIfTI has 1 to 7 dimensions, and the header says {}", len(0)))
        })?;
        let lens = (1..=count).map(|index| u64::try_from(len(index)));
        lens.collect::<std::result::Result<_, _>>()
            .map_err(|_| Error::corrupt("the header of NIfTI has a negative length"))
    }

    /// Returns the code of the type of elements.
    pub fn datatype(&self) -> i16 {
        self.fields.i16(self.places.datatype)
    }

    /// Returns where the elements begin.
    pub fn offset(&self) -> u64 {
        let offset = if self.is_2 {
            u64::try_from(self.fields.i64(168)).unwrap_or_default()
        } else {
            whole(f64::from(self.fields.f32(108)))
        };
        // Some programs leave it out.
        let least = if self.is_2 { 544 } else { 352 };
        if self.is_single { offset.max(least) } else { offset }
    }

    /// Returns the distance between elements along an axis of the file, 0 for x.
    pub fn step(&self, axis: usize) -> f64 {
        self.float(self.places.pixdim, axis.saturating_add(1)).abs()
    }

    /// Returns the time of the first volume.
    pub fn time_start(&self) -> f64 {
        self.float(self.places.toffset, 0)
    }

    /// Returns the slope and the intercept of values, if they change them.
    pub fn scaling(&self) -> Option<(f64, f64)> {
        let slope = self.float(self.places.scl_slope, 0);
        let intercept = self.float(self.places.scl_slope, 1);
        let is_used = slope.is_finite() && slope != 0.0 && intercept.is_finite();
        let changes = slope.to_bits() != 1_f64.to_bits() || intercept != 0.0;
        (is_used && changes).then_some((slope, intercept))
    }

    /// Returns the units of space and of time.
    pub fn units(&self) -> (Option<&'static str>, Option<&'static str>) {
        let code = if self.is_2 {
            self.fields.i32(500)
        } else {
            self.fields.bytes(123, 1).first().map_or(0, |code| i32::from(*code))
        };
        let space = match code & 0x07 {
            1 => Some("meter"),
            2 => Some("millimeter"),
            3 => Some("micrometer"),
            _ => None,
        };
        let time = match code & 0x38 {
            8 => Some("second"),
            16 => Some("millisecond"),
            24 => Some("microsecond"),
            32 => Some("hertz"),
            _ => None,
        };
        (space, time)
    }

    /// Returns the matrix from the indices of an element to x, y and z, as nibabel chooses it.
    pub fn matrix(&self) -> [[f64; 4]; 3] {
        if self.code(self.places.qform_code, 1) > 0 {
            return std::array::from_fn(|row| {
                let first = row.saturating_mul(4);
                std::array::from_fn(|at| self.float(self.places.srow, first.saturating_add(at)))
            });
        }
        if self.code(self.places.qform_code, 0) > 0 {
            return self.quaternion();
        }
        // The middle of the image is at the origin, and x goes to the left.
        let shape = self.shape().unwrap_or_default();
        std::array::from_fn(|row| {
            let len = shape.get(row).map_or(1, |len| u32::try_from(*len).unwrap_or(u32::MAX));
            let step = if row == 0 { -self.step(row) } else { self.step(row) };
            let mut line = [0.0; 4];
            line.get_mut(row).into_iter().for_each(|place| *place = step);
            line[3] = -step * (f64::from(len) - 1.0) / 2.0;
            line
        })
    }

    /// Returns the matrix by the quaternion.
    fn quaternion(&self) -> [[f64; 4]; 3] {
        let at = |index| self.float(self.places.quatern, index);
        let (b, c, d) = (at(0), at(1), at(2));
        let a = (1.0 - b * b - c * c - d * d).max(0.0).sqrt();
        let rows = [
            [a * a + b * b - c * c - d * d, 2.0 * (b * c - a * d), 2.0 * (b * d + a * c)],
            [2.0 * (b * c + a * d), a * a + c * c - b * b - d * d, 2.0 * (c * d - a * b)],
            [2.0 * (b * d - a * c), 2.0 * (c * d + a * b), a * a + d * d - b * b - c * c],
        ];
        let is_turned = self.float(self.places.pixdim, 0) < 0.0;
        let z = if is_turned { -self.step(2) } else { self.step(2) };
        let steps = [self.step(0), self.step(1), z];
        let mut index = 3;
        rows.map(|[x, y, z]| {
            let start = at(index);
            index = index.saturating_add(1);
            [x * steps[0], y * steps[1], z * steps[2], start]
        })
    }

    /// Returns what else the header says, by the names of its fields.
    pub fn shown(&self) -> Object {
        let mut shown = Object::new();
        let mut add = |name: &str, value: Value| {
            shown.insert(name.to_owned(), value);
        };
        // The macro `json` fails for numbers that JSON does not have.
        let row = |row: [f64; 4]| row.into_iter().map(double).collect::<Value>();
        add("affine", self.matrix().into_iter().chain([[0.0, 0.0, 0.0, 1.0]]).map(row).collect());
        let pixdim = (0..8).map(|index| self.number(self.places.pixdim, index)).collect();
        add("pixdim", Value::Array(pixdim));
        add("qform_code", json!(self.code(self.places.qform_code, 0)));
        add("sform_code", json!(self.code(self.places.qform_code, 1)));
        let intent = if self.is_2 { self.fields.i32(504) } else { self.code(68, 0) };
        let info = if self.is_2 { 524 } else { 39 };
        let info = self.fields.bytes(info, 1).first().copied().unwrap_or_default();
        for (name, code) in [("intent_code", intent), ("dim_info", i32::from(info))] {
            if code != 0 {
                add(name, json!(code));
            }
        }
        for (name, at) in self.places.floats {
            if self.float(at, 0) != 0.0 {
                add(name, self.number(at, 0));
            }
        }
        for (name, at, len) in self.places.texts {
            let text = self.fields.text(at, len);
            if !text.is_empty() {
                add(name, Value::from(text));
            }
        }
        shown
    }

    fn number(&self, at: usize, index: usize) -> Value {
        if self.is_2 {
            double(self.float(at, index))
        } else {
            single(self.fields.f32(at.saturating_add(index.saturating_mul(4))))
        }
    }
}

/// Returns a float as a place in a file.
fn whole(value: f64) -> u64 {
    let digits = if value.is_finite() && value > 0.0 {
        format!("{:.0}", value.floor())
    } else {
        String::new()
    };
    digits.parse().unwrap_or_default()
}
