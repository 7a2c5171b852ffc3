//! The pages with which servers list a directory.
//!
//! A page counts as a list only if it has the form that a server gives one: any other page, such as
//! that of a viewer beside the data, says nothing about what is there. Of a list, only names
//! directly below the directory count, by their links.

mod dav;
mod html;
mod json;
mod names;

pub(super) use dav::{BODY as DAV_BODY, parse as parse_dav};
pub(super) use html::parse as parse_html;
pub(super) use json::parse as parse_json;
pub(super) use names::{Listed, Names};
