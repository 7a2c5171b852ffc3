//! The header of a frame and how its blocks are split. The encoder and the decoder share it.

/// The length of the header.
pub(super) const HEADER_LEN: usize = 16;

/// The only known version of the frame, and of each codec in it.
pub(super) const VERSION: u8 = 2;
pub(super) const CODEC_VERSION: u8 = 1;

/// Frames below this many bytes are stored, and splits are never shorter.
pub(super) const MIN_BUFFER_LEN: usize = 128;

/// Blocks of longer items are not split.
pub(super) const MAX_SPLITS: usize = 16;

/// The number of bytes that is worth another thread.
const SHARE_LEN: usize = 128 << 10;

/// The codec in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compressor {
    BloscLz,
    Lz4,
    Snappy,
    Zlib,
    Zstd,
}

impl Compressor {
    pub(super) fn from_flags(flags: u8) -> Option<Self> {
        match flags >> 5 {
            0 => Some(Self::BloscLz),
            1 => Some(Self::Lz4),
            2 => Some(Self::Snappy),
            3 => Some(Self::Zlib),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    pub(super) fn flags(self) -> u8 {
        let number = match self {
            Self::BloscLz => 0,
            Self::Lz4 => 1,
            Self::Snappy => 2,
            Self::Zlib => 3,
            Self::Zstd => 4,
        };
        number << 5
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::BloscLz => "blosclz",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// The filter of a block before compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    None,
    Bytes,
    Bits,
}

impl Filter {
    pub(super) const BYTES_FLAG: u8 = 0x01;
    pub(super) const BITS_FLAG: u8 = 0x04;

    /// Returns the filter of a frame with items of this length. Shuffling single bytes has no
    /// effect.
    pub(super) fn from_flags(flags: u8, item_len: usize) -> Self {
        if flags & Self::BYTES_FLAG != 0 && item_len > 1 {
            Self::Bytes
        } else if flags & Self::BITS_FLAG != 0 {
            Self::Bits
        } else {
            Self::None
        }
    }

    /// Returns the scratch space in bytes that a block of this length needs.
    pub(super) fn room(self, block_len: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Bytes => block_len,
            Self::Bits => block_len.saturating_mul(2),
        }
    }

    pub(super) fn flags(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Bytes => Self::BYTES_FLAG,
            Self::Bits => Self::BITS_FLAG,
        }
    }
}

/// The flags that name neither a codec nor a filter.
pub(super) const STORED_FLAG: u8 = 0x02;
pub(super) const RESERVED_FLAG: u8 = 0x08;
pub(super) const UNSPLIT_FLAG: u8 = 0x10;

/// The header of a frame. The decoder has checked each member.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameHeader {
    pub flags: u8,
    /// The length of an item, at least 1.
    pub item_len: u8,
    pub decoded_len: u32,
    /// The length of a block, at least 1 unless the frame is empty.
    pub block_len: u32,
    pub encoded_len: u32,
}

impl FrameHeader {
    pub(super) fn to_bytes(self) -> [[u8; 4]; HEADER_LEN / 4] {
        [
            [VERSION, CODEC_VERSION, self.flags, self.item_len],
            self.decoded_len.to_le_bytes(),
            self.block_len.to_le_bytes(),
            self.encoded_len.to_le_bytes(),
        ]
    }
}

/// Returns the number of splits of a whole block, unless the flag forbids splits. If the last block
/// of a frame is shorter, it has one split.
pub(super) fn split_count(item_len: usize, block_len: usize) -> usize {
    if item_len <= MAX_SPLITS && block_len / item_len >= MIN_BUFFER_LEN { item_len } else { 1 }
}

/// Returns the number of blocks that one thread takes at a time if several threads share a frame.
pub(super) fn share(block_len: usize) -> usize {
    SHARE_LEN.div_ceil(block_len.max(1))
}
