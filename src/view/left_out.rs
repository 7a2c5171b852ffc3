//! The nodes below a group that a file of the group cannot hold.

use crate::error::Error;
use crate::metadata::NodePath;

/// The most nodes that are named.
const MOST_NAMED: usize = 100;

/// The nodes that a file lacks, and why.
#[derive(Debug, Clone, Default)]
pub struct LeftOut {
    nodes: Vec<(String, String)>,
    count: usize,
}

impl LeftOut {
    /// Adds a node of `group` to the nodes that the file of `root` lacks.
    pub fn add(&mut self, root: &NodePath, group: &NodePath, name: &str, why: &Error) {
        self.count = self.count.saturating_add(1);
        if self.nodes.len() < MOST_NAMED {
            let name = match group.relative_to(root) {
                Some(above) if !above.is_empty() => format!("{above}/{name}"),
                _ => name.to_owned(),
            };
            self.nodes.push((name, why.detail().to_string()));
        }
    }

    /// Returns at most `MOST_NAMED` nodes by their paths below the node of the file, with the
    /// reasons.
    pub fn nodes(&self) -> &[(String, String)] {
        &self.nodes
    }

    /// Returns the number of nodes that are not named.
    pub fn more(&self) -> usize {
        self.count.saturating_sub(self.nodes.len())
    }

    /// Returns a line for each node, without line ends.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let more = (self.more() > 0).then(|| format!("and {} more", self.more()));
        self.nodes.iter().map(|(name, why)| format!("{name}: {why}")).chain(more)
    }
}
