//! Filter chains in the notation of Python's lzma: `[{"id": 3, "dist": 4}, {"id": 33, "preset":
//! 1}]`.

use liblzma::stream::{Filters, LzmaOptions, MatchFinder, Mode};
use serde_json::Value;

use crate::configuration::{count, integer};
use crate::json::Object;
use zarrfs_base::admission;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The default preset of liblzma and of Python.
const DEFAULT_PRESET: u32 = 6;

/// The identifiers of the .xz format, and the one that liblzma gives LZMA1.
const LZMA1: u64 = 0x4000_0000_0000_0001;
const LZMA2: u64 = 0x21;
const DELTA: u64 = 0x03;

/// The most filters in a chain.
const MAX_FILTERS: usize = 4;

/// The largest dictionary within the memory limit.
const MAX_DICT_LEN: u32 = 128 << 20;

/// An encoder takes up to so many times its dictionary.
const ENCODER_DICTS: u64 = 12;

/// The shortest dictionary that liblzma accepts.
const MIN_DICT_LEN: u32 = 4096;

/// The bit of a preset that requests a slower search.
const EXTREME: i64 = 1 << 31;

/// The dictionaries of the presets, in bytes as powers of two.
const PRESET_DICT_BITS: [u32; 10] = [18, 20, 21, 22, 22, 23, 23, 24, 25, 26];

/// A chain of filters that ends with a compressor.
#[derive(Debug, Clone)]
pub(super) struct FilterChain(Vec<Filter>);

/// One filter of a chain.
#[derive(Debug, Clone)]
pub(super) enum Filter {
    Lzma {
        version: LzmaVersion,
        options: FilterOptions,
    },
    /// The distance in bytes, less 1.
    Delta {
        distance: u8,
    },
    /// A filter for machine code, by its identifier, with its start offset.
    Branch {
        id: u64,
        start_offset: u32,
    },
}

/// The version of LZMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LzmaVersion {
    One,
    Two,
}

/// The options of LZMA. Absent ones come from the preset.
#[derive(Debug, Clone)]
pub(super) struct FilterOptions {
    preset: u32,
    dict_len: u32,
    literal_context_bits: Option<u32>,
    literal_position_bits: Option<u32>,
    position_bits: Option<u32>,
    mode: Option<Mode>,
    nice_len: Option<u32>,
    match_finder: Option<MatchFinder>,
    depth: Option<u32>,
}

/// Returns the `preset` of a configuration or of a filter: 0 to 9, optionally with the bit for
/// extreme.
pub(super) fn preset(configuration: &Object) -> Result<u32> {
    let default = i64::from(DEFAULT_PRESET);
    let preset = integer("lzma", configuration, "preset", default, 0..=(EXTREME | 9))?;
    match u32::try_from(preset) {
        Ok(number) if preset & !EXTREME <= 9 => Ok(number),
        _ => Err(Error::invalid(format!("lzma: preset {preset} is not in 0..=9"))),
    }
}

impl FilterChain {
    pub fn new(filters: Vec<Filter>) -> Self {
        Self(filters)
    }

    /// Parses the member `filters`, if present.
    pub fn parse(configuration: &Object) -> Result<Option<Self>> {
        let list = match configuration.get("filters") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Array(list)) if (1..=MAX_FILTERS).contains(&list.len()) => list,
            Some(_) => return Err(Error::invalid("lzma: filters is not a list of 1 to 4 filters")),
        };
        list.iter().map(Filter::parse).collect::<Result<_>>().map(|filters| Some(Self(filters)))
    }

    /// Whether the chain is valid in a .lzma file.
    pub fn is_lzma1_alone(&self) -> bool {
        matches!(self.0.as_slice(), [Filter::Lzma { version: LzmaVersion::One, .. }])
    }

    /// Returns the chain for liblzma. To encode `decoded_len` bytes it limits the dictionary to
    /// that length.
    pub fn filters(&self, decoded_len: Option<usize>) -> Result<Filters> {
        let mut filters = Filters::new();
        for filter in &self.0 {
            filter.append_to(&mut filters, decoded_len)?;
        }
        Ok(filters)
    }

    /// Returns the most bytes that an encoder takes for `decoded_len` bytes.
    pub fn encoder_memory(&self, decoded_len: usize) -> u64 {
        let dict_len = |filter: &Filter| match filter {
            Filter::Lzma { options, .. } => u64::from(options.encoder_dict_len(decoded_len)),
            Filter::Delta { .. } | Filter::Branch { .. } => 0,
        };
        self.0.iter().map(dict_len).sum::<u64>().saturating_mul(ENCODER_DICTS)
    }

    /// Returns the options of the LZMA1 filter of a .lzma file.
    pub fn lzma1_options(&self, decoded_len: usize) -> Result<LzmaOptions> {
        match self.0.as_slice() {
            [Filter::Lzma { options, .. }] => options.to_liblzma(Some(decoded_len)),
            _ => Err(Error::invalid("lzma: format 2 (alone) needs exactly one filter, LZMA1")),
        }
    }
}

impl Filter {
    /// Returns LZMA1 with the options of a preset.
    pub fn lzma1(preset: u32) -> Result<Self> {
        Ok(Self::Lzma { version: LzmaVersion::One, options: FilterOptions::preset(preset)? })
    }

    /// Returns LZMA2 with the options of a preset.
    pub fn lzma2(preset: u32) -> Result<Self> {
        Ok(Self::Lzma { version: LzmaVersion::Two, options: FilterOptions::preset(preset)? })
    }

    /// Returns a delta filter with this distance in bytes, 1 to 256.
    pub fn delta(distance: u32) -> Result<Self> {
        distance
            .checked_sub(1)
            .and_then(|distance| u8::try_from(distance).ok())
            .map(|distance| Self::Delta { distance })
            .ok_or_else(|| Error::invalid(format!("lzma: dist {distance} is not in 1..=256")))
    }

    fn parse(filter: &Value) -> Result<Self> {
        let unknown = || Error::invalid(format!("lzma: filter {filter} is not known"));
        let filter_object = filter.as_object().ok_or_else(unknown)?;
        match filter_object.get("id").and_then(Value::as_u64).ok_or_else(unknown)? {
            LZMA1 => Ok(Self::Lzma {
                version: LzmaVersion::One,
                options: FilterOptions::parse(filter_object)?,
            }),
            LZMA2 => Ok(Self::Lzma {
                version: LzmaVersion::Two,
                options: FilterOptions::parse(filter_object)?,
            }),
            DELTA => Self::delta(count("lzma", filter_object, "dist", 1, 1..=256)?),
            id @ 4..=9 => Ok(Self::Branch {
                id,
                start_offset: count("lzma", filter_object, "start_offset", 0, 0..=u32::MAX)?,
            }),
            _ => Err(unknown()),
        }
    }

    fn append_to(&self, filters: &mut Filters, decoded_len: Option<usize>) -> Result<()> {
        match self {
            Self::Lzma { version, options } => {
                let options = options.to_liblzma(decoded_len)?;
                match version {
                    LzmaVersion::One => filters.lzma1(&options),
                    LzmaVersion::Two => filters.lzma2(&options),
                };
                Ok(())
            }
            Self::Delta { distance } => filters.delta_properties(&[*distance]).map(drop),
            Self::Branch { id, start_offset } => {
                let offset = &start_offset.to_le_bytes();
                match id {
                    4 => filters.x86_properties(offset),
                    5 => filters.powerpc_properties(offset),
                    6 => filters.ia64_properties(offset),
                    7 => filters.arm_properties(offset),
                    8 => filters.arm_thumb_properties(offset),
                    _ => filters.sparc_properties(offset),
                }
                .map(drop)
            }
        }
        .map_err(|error: liblzma::stream::Error| Error::invalid(format!("lzma: {error}")))
    }
}

impl FilterOptions {
    fn preset(preset: u32) -> Result<Self> {
        let level = (preset & 0xf).to_usize();
        let bits = PRESET_DICT_BITS
            .get(level)
            .ok_or_else(|| Error::invalid(format!("lzma: preset {level} is not in 0..=9")))?;
        Ok(Self {
            preset,
            dict_len: 1 << bits,
            literal_context_bits: None,
            literal_position_bits: None,
            position_bits: None,
            mode: None,
            nice_len: None,
            match_finder: None,
            depth: None,
        })
    }

    fn parse(filter: &Object) -> Result<Self> {
        let member = |name: &str, max: u32| match filter.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => count("lzma", filter, name, 0, 0..=max).map(Some),
        };
        let of_preset = Self::preset(preset(filter)?)?;
        let dict_len =
            count("lzma", filter, "dict_size", of_preset.dict_len, MIN_DICT_LEN..=MAX_DICT_LEN)?;
        let mode = match member("mode", 2)? {
            Some(1) => Some(Mode::Fast),
            Some(2) => Some(Mode::Normal),
            _ => None,
        };
        let match_finder = match member("mf", 0x14)? {
            None => None,
            Some(0x03) => Some(MatchFinder::HashChain3),
            Some(0x04) => Some(MatchFinder::HashChain4),
            Some(0x12) => Some(MatchFinder::BinaryTree2),
            Some(0x13) => Some(MatchFinder::BinaryTree3),
            Some(0x14) => Some(MatchFinder::BinaryTree4),
            Some(other) => return Err(Error::invalid(format!("lzma: mf {other} is not known"))),
        };
        let (literal_context_bits, literal_position_bits) = (member("lc", 4)?, member("lp", 4)?);
        if literal_context_bits.unwrap_or(3) + literal_position_bits.unwrap_or(0) > 4 {
            return Err(Error::invalid("lzma: lc and lp are more than 4 together"));
        }
        Ok(Self {
            dict_len,
            literal_context_bits,
            literal_position_bits,
            position_bits: member("pb", 4)?,
            mode,
            nice_len: member("nice_len", 273)?,
            match_finder,
            depth: member("depth", 1000)?,
            ..of_preset
        })
    }

    /// Returns the length of the dictionary to encode `decoded_len` bytes. An encoder allocates a
    /// multiple of it, whether it needs that or not; a shorter one finds fewer repetitions.
    fn encoder_dict_len(&self, decoded_len: usize) -> u32 {
        let needed = decoded_len.checked_next_power_of_two();
        let needed = needed.and_then(|len| u32::try_from(len).ok()).unwrap_or(u32::MAX);
        let most = admission::longest_tables() / ENCODER_DICTS;
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.dict_len.min(needed).min(most).max(MIN_DICT_LEN)
    }

    fn to_liblzma(&self, decoded_len: Option<usize>) -> Result<LzmaOptions> {
        let mut options = LzmaOptions::new_preset(self.preset)
            .map_err(|error| Error::invalid(format!("lzma: {error}")))?;
        let needed = decoded_len.map_or(self.dict_len, |len| self.encoder_dict_len(len));
        options.dict_size(needed);
        if let Some(bits) = self.literal_context_bits {
            options.literal_context_bits(bits);
        }
        if let Some(bits) = self.literal_position_bits {
            options.literal_position_bits(bits);
        }
        if let Some(bits) = self.position_bits {
            options.position_bits(bits);
        }
        if let Some(mode) = self.mode {
            options.mode(mode);
        }
        if let Some(len) = self.nice_len {
            options.nice_len(len);
        }
        if let Some(match_finder) = self.match_finder {
            options.match_finder(match_finder);
        }
        if let Some(depth) = self.depth {
            options.depth(depth);
        }
        Ok(options)
    }
}
