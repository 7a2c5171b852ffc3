//! Reads `.zarrfs/stats` of a mount.

use std::path::Path;

/// The counters of a mount, in the text format of Prometheus.
#[derive(Debug)]
pub struct Stats(String);

impl Stats {
    /// Reads the counters of the mount at a mountpoint; `None` if it is not a zarrfs mount, or does
    /// not answer.
    pub fn of(mountpoint: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(mountpoint.join(".zarrfs/stats")).ok()?;
        text.contains("zarrfs_process_id ").then_some(Self(text))
    }

    /// Returns the counter with this name, without `zarrfs_`.
    pub fn number(&self, name: &str) -> Option<u64> {
        let of = |line: &str| {
            line.strip_prefix("zarrfs_")?.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()
        };
        self.0.lines().find_map(of)
    }

    /// Returns a label of the line that describes the mount.
    pub fn label(&self, name: &str) -> Option<String> {
        let line = self.0.lines().find_map(|line| line.strip_prefix("zarrfs_mount_info{"))?;
        let start = format!("{name}=\"");
        let rest = line.get(line.find(&start)?.checked_add(start.len())?..)?;
        let mut value = String::new();
        let mut chars = rest.chars();
        loop {
            match chars.next()? {
                '"' => return Some(value),
                '\\' => value.push(match chars.next()? {
                    'n' => '\n',
                    char => char,
                }),
                char => value.push(char),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_labels_are_found_by_name() {
        let text = "# TYPE zarrfs_inodes gauge\nzarrfs_inodes 3\n\
                    zarrfs_mount_info{form=\"zarr\",source=\"/a \\\"b\\\\\\n\"} 1\n";
        let stats = Stats(text.to_owned());
        assert_eq!(stats.number("inodes"), Some(3));
        assert_eq!(stats.number("inode"), None);
        assert_eq!(stats.label("form").as_deref(), Some("zarr"));
        assert_eq!(stats.label("source").as_deref(), Some("/a \"b\\\n"));
    }
}
