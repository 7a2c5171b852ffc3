//! Codecs from bytes to bytes, one file each.
