//! The colours and characters of terminals.

/// The colours that a terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colors {
    /// None, as in a file or a pipe.
    None,
    /// The eight ANSI colours, normal and bright.
    Sixteen,
    /// The 256 colours of xterm.
    Indexed,
    /// 24 bits.
    True,
}

/// The characters that a terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glyphs {
    /// Unicode, with blocks and lines.
    Blocks,
    /// ASCII only.
    Ascii,
}
