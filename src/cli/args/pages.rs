//! `zarrfs man` and `zarrfs completions`: pages and completions that packages install.
//!
//! The pages of the commands come from the definitions of their arguments, and zarrfs-formats(5)
//! from the tables of dialects, codecs and views, so these pages cannot be outdated. The page of
//! mount.zarrfs(8) is written by hand.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::{Args, Completions, Man as ManArgs};
use crate::cli::failure::{Failure, failed};
use crate::cli::output::print;
use crate::codec::table;
use crate::metadata::Dialect;
use crate::view::{FORMATS, Format};

/// The page of `mount.zarrfs`.
const MOUNT_HELPER: &str = include_str!("../../../packaging/man/mount.zarrfs.8");

/// Prints completions.
pub fn completions(args: &Completions) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "zarrfs", &mut text);
    print::output(&String::from_utf8_lossy(&text))
}

/// Writes the man pages into a directory, or prints that of zarrfs.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let Some(dir) = &args.dir else {
        return print::output(&page(&command, "zarrfs")?);
    };
    write(dir, "zarrfs.1", &page(&command, "zarrfs")?)?;
    let is_shown = |below: &&Command| !below.is_hide_set();
    for below in command.get_subcommands().filter(is_shown) {
        let name = format!("zarrfs-{}", below.get_name());
        write(dir, &format!("{name}.1"), &page(below, &name)?)?;
    }
    write(dir, "zarrfs-formats.5", &formats())?;
    write(dir, "mount.zarrfs.8", MOUNT_HELPER)?;
    write(dir, "mount.fuse.zarrfs.8", ".so man8/mount.zarrfs.8\n")
}

/// Returns the man page of a command.
fn page(command: &Command, name: &str) -> Result<String, Failure> {
    // clap keeps names for as long as the program runs.
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let command = command.clone().name(name).display_name(name);
    let mut text = Vec::new();
    let version = concat!("zarrfs ", env!("CARGO_PKG_VERSION"));
    // clap_mangen writes an empty date as nothing, and man(1) takes the next word for the date.
    Man::new(command).section("1").date(" ").source(version).manual("zarrfs").render(&mut text)?;
    Ok(keep_lines(&String::from_utf8_lossy(&text)))
}

/// Keeps the lines of tables and examples, which are indented, in the last section of a page.
/// Without this, man(1) fills all lines.
fn keep_lines(page: &str) -> String {
    let Some((page, notes)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let mut kept = format!("{page}.SH NOTES\n");
    let mut is_kept = false;
    for line in notes.lines() {
        let is_indented = line.starts_with(' ');
        if is_indented != is_kept {
            kept.push_str(if is_indented { ".nf\n" } else { ".fi\n" });
            is_kept = is_indented;
        }
        kept.extend([if line.is_empty() { ".PP" } else { line }, "\n"]);
    }
    kept
}

/// Returns the page about what zarrfs reads and writes.
fn formats() -> String {
    let mut page = format!(
        ".TH zarrfs\\-formats 5 \"\" \"zarrfs {}\" \"zarrfs\"\n.SH NAME\nzarrfs\\-formats \\- dialects, \
         codecs and file formats that zarrfs reads and writes\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut section = |title: &str, text: &str, rows: Vec<(String, String)>| {
        page.extend([".SH ", title, "\n", &escaped(text), "\n"]);
        for (name, what) in rows {
            page.extend([".TP\n.B ", &escaped(&name), "\n", &escaped(&what), "\n"]);
        }
    };
    let dialect = |dialect: Dialect| {
        let makes = match dialect.check_makes_nodes() {
            Ok(()) => "read and written",
            Err(_) => "read, and its chunks written; no new nodes",
        };
        (dialect.name().to_owned(), makes.to_owned())
    };
    section(
        "DIALECTS",
        "A dialect is a version of the Zarr format on disk. zarrfs detects the dialect of a hierarchy; \
         the option --from sets it.",
        Dialect::all().into_iter().map(dialect).collect(),
    );
    let names = |format: &'static Format| {
        let own = Format::names().filter(|(_, named)| named.extension == format.extension);
        let own: Vec<String> = own.map(|(name, _)| format!(".{name}")).collect();
        (own.join(", "), format.what.to_owned())
    };
    section(
        "FILES OF OTHER FORMATS",
        "In a mount, an array X can also be opened as X.npy and so on, and a group G as G.nc; the root \
         group is __root__.nc. They are not listed unless --views names them.",
        FORMATS.iter().map(names).collect(),
    );
    section(
        "CODECS",
        "These names can be given to --codecs, some with a level (zstd:19). Other codecs are written \
         as a JSON list of Zarr 3 codecs.",
        vec![("names".to_owned(), table::ids(|row| row.is_option).join(", "))],
    );
    section("SEE ALSO", "zarrfs(1), zarrfs-mount(1), zarrfs-convert(1)", Vec::new());
    page
}

/// Escapes text for troff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // A dot at the start of a line is a request.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// Writes a page into the directory of its section.
fn write(dir: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let section = name.rsplit('.').next().unwrap_or("1");
    let dir = dir.join(format!("man{section}"));
    let path = dir.join(name);
    let written = fs::create_dir_all(&dir).and_then(|()| fs::write(&path, text));
    written.map_err(|error| failed(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_examples_keep_their_lines_and_sentences_are_filled() {
        let page =
            ".SH NAME\nx\n.SH EXTRA\nExamples:\n  x a   does a\n  x b   does b\n\nThe end.\n";
        let kept = ".SH NAME\nx\n.SH NOTES\nExamples:\n.nf\n  x a   does a\n  x b   does b\n.fi\n.PP\nThe \
                    end.\n";
        assert_eq!(keep_lines(page), kept);
        assert_eq!(keep_lines(".SH NAME\nx\n"), ".SH NAME\nx\n");
    }
}
