//! `mount.zarrfs SOURCE DIR [-sfnv] [-o OPTIONS]`: this program as mount(8) and fstab start it.
//!
//! mount(8) runs `/sbin/mount.TYPE` for a type, and `mount.fuse.zarrfs` for `fuse.zarrfs`. By then
//! it has decoded the octal escapes of fstab. The letters have the meaning that they have for
//! mount(8): `-f` is not the foreground.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::cli::failure::Failure;

/// The names under which mount(8) starts the program.
const NAMES: [&str; 2] = ["mount.zarrfs", "mount.fuse.zarrfs"];

const USAGE: &str = "mount.zarrfs SOURCE DIR [-sfnv] [-o OPTIONS]";

/// Returns the command line of `zarrfs mount` for that of mount(8); `None` if the program has
/// another name.
pub fn translate(args: &[OsString]) -> Option<Result<Vec<OsString>, Failure>> {
    let name = Path::new(args.first()?).file_name()?;
    NAMES.iter().any(|known| name == OsStr::new(known)).then(|| command(args))
}

fn command(args: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let usage = |why: &str| Failure::Usage(format!("{why}; usage: {USAGE}"));
    let mut options: Vec<OsString> = Vec::new();
    let mut paths = Vec::new();
    let mut rest = args.iter().skip(1);
    while let Some(word) = rest.next() {
        let letters = word.to_str().and_then(|word| word.strip_prefix('-'));
        let Some(letters) = letters.filter(|letters| !letters.is_empty()) else {
            paths.push(word.clone());
            continue;
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            match letter {
                'f' => options.push("--fake".into()),
                's' => options.push("--sloppy".into()),
                'v' => options.push("--verbose".into()),
                'n' => {}
                'o' | 't' | 'N' => {
                    let joined = letters.as_str();
                    let value = if joined.is_empty() {
                        let next = rest.next();
                        next.cloned().ok_or_else(|| usage(&format!("-{letter} needs a value")))?
                    } else {
                        joined.into()
                    };
                    match letter {
                        'o' => options.extend(["-o".into(), value]),
                        // mount(8) has chosen this program by the type.
                        't' => {}
                        _ => return Err(usage("-N: mount inside the namespace with nsenter(1)")),
                    }
                    break;
                }
                other => return Err(usage(&format!("-{other}: unknown option"))),
            }
        }
    }
    if paths.len() != 2 {
        return Err(usage("expected a source and a directory"));
    }
    let program = args.first().cloned();
    Ok(program.into_iter().chain(["mount".into()]).chain(options).chain(paths).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, String> {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let words = translate(&args).expect("a name for mount(8)");
        let words = words.map_err(|failure| failure.message().to_owned())?;
        Ok(words.join(OsStr::new(" ")).to_str().expect("UTF-8").to_owned())
    }

    #[test]
    fn the_words_of_mount_become_those_of_zarrfs_mount() {
        assert_eq!(
            translated("/sbin/mount.zarrfs a.zarr /mnt -sfnv -o ro,uid=1").as_deref(),
            Ok("/sbin/mount.zarrfs mount --sloppy --fake --verbose -o ro,uid=1 a.zarr /mnt")
        );
        assert_eq!(
            translated("mount.fuse.zarrfs a /mnt -o rw -t fuse.zarrfs").as_deref(),
            Ok("mount.fuse.zarrfs mount -o rw a /mnt")
        );
        assert_eq!(
            translated("mount.zarrfs a b -oro").as_deref(),
            Ok("mount.zarrfs mount -o ro a b")
        );
        for wrong in ["mount.zarrfs a", "mount.zarrfs a b -x", "mount.zarrfs a b -o"] {
            assert!(translated(wrong).expect_err("wrong").contains("usage: mount.zarrfs"));
        }
        assert!(translate(&["/usr/bin/zarrfs".into()]).is_none());
    }
}
