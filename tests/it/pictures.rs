//! The complete output of `zarrfs info` and `tree`, compared with the files in `tests/pictures`. If
//! the variable `ZARRFS_UPDATE` is set, the test writes these files.

use std::fs;
use std::path::Path;

use crate::support::{said, zarrfs};

/// The shape of a chunk; the array has 3 x 48 x 96 elements.
const CHUNK: [usize; 3] = [1, 16, 24];

/// The element at a row and a column of a plane.
fn element(plane: usize, row: usize, column: usize) -> f32 {
    let single = |number: usize| f32::from(u16::try_from(number).unwrap());
    let distance = (single(row) - 20.0).powi(2) + (single(column) / 2.0 - 25.0).powi(2);
    280.0 + single(plane) - (distance / 10.0).floor()
}

/// Makes `a.zarr/x` in `dir`. The second plane lacks a chunk and has a chunk of fill values; the
/// third plane is missing.
fn make(dir: &Path) {
    let source = dir.join("a.zarr/x");
    let source = source.to_str().unwrap();
    let words = ["create", source, "--shape", "3,48,96", "--chunks", "1,16,24", "--fill", "NaN"];
    let more = ["--dtype", "float32", "--codecs", "none", "--dimensions", "time,y,x"];
    let units = ["--attrs", r#"{"units": "K"}"#];
    assert_eq!(said(&[&words[..], &more, &units].concat()), (0, String::new()));
    for (plane, row, column) in (0..24).map(|at| (at / 12, at / 4 % 3, at % 4)) {
        let element = |at: usize| match (plane, row, column) {
            (1, 2, 0) => f32::NAN,
            _ => element(plane, row * CHUNK[1] + at / CHUNK[2], column * CHUNK[2] + at % CHUNK[2]),
        };
        let bytes: Vec<u8> =
            (0..CHUNK[1] * CHUNK[2]).flat_map(|at| element(at).to_le_bytes()).collect();
        let file = dir.join(format!("a.zarr/x/c/{plane}/{row}/{column}"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        if (plane, row, column) != (1, 0, 3) {
            fs::write(file, bytes).unwrap();
        }
    }
}

/// Runs zarrfs in `dir` with this environment, and returns what it printed.
fn printed(dir: &Path, words: &[&str], environment: &[(&str, &str)]) -> String {
    let mut command = zarrfs();
    for name in ["COLUMNS", "TERM", "COLORTERM", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.current_dir(dir).args(words).envs(environment.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The name of a picture, the words of the command, and its environment.
type Case<'c> = (&'c str, &'c [&'c str], &'c [(&'c str, &'c str)]);

#[test]
fn pictures_fit_every_width_and_terminal() {
    let place = tempfile::tempdir().unwrap();
    make(place.path());
    let all = ["info", "a.zarr/x", "--stats", "--chunks", "--plot", "1,:,:"];
    let colors = [&all[..], &["--color", "always"]].concat();
    let one = ["info", "a.zarr/x", "--plot", "0,5,:"];
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures");
    let cases: [Case<'_>; 10] = [
        ("40", &all, &[("COLUMNS", "40")]),
        ("80", &all, &[]),
        ("200", &all, &[("COLUMNS", "200")]),
        ("dumb", &all, &[("TERM", "dumb")]),
        ("sixteen", &colors, &[("COLUMNS", "40"), ("TERM", "xterm")]),
        ("indexed", &colors, &[("COLUMNS", "40"), ("TERM", "xterm-256color")]),
        ("true", &colors, &[("COLUMNS", "40"), ("COLORTERM", "truecolor")]),
        ("line", &one, &[]),
        ("facts", &["info", "a.zarr/x"], &[]),
        ("tree", &["tree", "a.zarr", "--sizes", "--bytes"], &[]),
    ];
    for (name, words, environment) in cases {
        let found = printed(place.path(), words, environment);
        let file = pictures.join(format!("{name}.txt"));
        if std::env::var_os("ZARRFS_UPDATE").is_some() {
            fs::create_dir_all(&pictures).unwrap();
            fs::write(&file, &found).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap();
        assert!(
            found == expected,
            "{} is outdated, if this is right (`ZARRFS_UPDATE=1 cargo test --test it pictures_fit` \
             writes it):\n{found}\nexpected:\n{expected}",
            file.display()
        );
    }
}

#[test]
fn pipes_have_no_colours_and_the_option_is_stronger_than_the_environment() {
    let place = tempfile::tempdir().unwrap();
    make(place.path());
    let tree = |words: &[&str], environment: &[(&str, &str)]| {
        printed(place.path(), &[&["tree", "a.zarr"], words].concat(), environment).contains('\x1b')
    };
    assert!(!tree(&[], &[("TERM", "xterm")]));
    assert!(tree(&["--color", "always"], &[("NO_COLOR", "1")]));
    assert!(!tree(&["--color", "never"], &[]));
}

#[test]
fn the_depth_of_a_tree_is_limited_on_request() {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("a.zarr/g/h/x");
    let words = ["create", source.to_str().unwrap(), "--shape", "4", "--dtype", "int8"];
    assert_eq!(said(&words), (0, String::new()));
    let names = |depth: &str| {
        let tree = printed(place.path(), &["tree", "a.zarr", "--depth", depth], &[]);
        tree.lines().count()
    };
    assert_eq!([names("0"), names("1"), names("2"), names("3"), names("9")], [1, 2, 3, 4, 4]);
}

#[test]
fn sections_refuse_what_they_cannot_show_in_one_sentence() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (text, group) = (path("a.zarr/t"), path("a.zarr"));
    let words = ["create", &text, "--shape", "4,4", "--dtype", "string"];
    assert_eq!(said(&words), (0, String::new()));
    make(place.path());
    let x = path("a.zarr/x");
    for (words, parts) in [
        (vec!["info", &group, "--plot"], ["no plot", "name an array in the group"]),
        (vec!["info", &text, "--plot"], ["no plot", "elements of type string are not numbers"]),
        (vec!["info", &x, "--plot", ":,:,:"], ["has 3 dimensions", "give an index for the others"]),
        (vec!["info", &x, "--plot=9,:,:"], ["no plot", "dimension 0 has 3 elements"]),
    ] {
        let (code, sentence) = said(&words);
        assert_eq!((code, sentence.lines().count()), (1, 1), "{words:?}: {sentence}");
        assert!(parts.iter().all(|part| sentence.contains(part)), "{words:?}: {sentence}");
    }
}
