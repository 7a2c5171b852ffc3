//! The list of what a file lacks or has in another form, because its format cannot hold it: nodes
//! below a group, and properties of nodes. `.zarrfs/views` and `zarrfs info` print the list.

use crate::error::{Error, Word};
use crate::metadata::NodePath;
use crate::view::image::Image;

/// The most nodes, and the most properties, that are named.
const MOST_NAMED: usize = 100;

/// The most names in the line of a property.
const MOST_NAMES: usize = 12;

/// The nodes that a file lacks, with the reasons, and the properties that it cannot express.
#[derive(Debug, Clone, Default)]
pub struct LeftOutOfView {
    nodes: Vec<(String, String)>,
    count: usize,
    unread: usize,
    properties: Vec<String>,
    property_count: usize,
}

impl LeftOutOfView {
    /// Returns what the file of an image lacks of its description. `has_directions` is whether it
    /// says how axes are turned.
    pub fn of_image(path: &NodePath, image: &Image, has_directions: bool) -> Self {
        let mut left_out = Self::default();
        for what in &image.left_out {
            left_out.add_property(path, path, what);
        }
        if !has_directions && image.directions.is_some() {
            let what = "the directions of its axes, which are turned in the coordinate system";
            left_out.add_property(path, path, what);
        }
        left_out
    }

    /// Adds a node of `group` to the nodes that the file of `root` lacks.
    pub fn add(&mut self, root: &NodePath, group: &NodePath, name: &str, why: &Error) {
        self.count = self.count.saturating_add(1);
        if matches!(why.word(), Word::Refused | Word::Damaged | Word::Failed) {
            self.unread = self.unread.saturating_add(1);
        }
        if self.nodes.len() < MOST_NAMED {
            let name = match group.relative_to(root) {
                Some(above) if !above.is_empty() => format!("{above}/{name}"),
                _ => name.to_owned(),
            };
            self.nodes.push((name, why.detail().to_string()));
        }
    }

    /// Adds a property of `node` that the file of `root` lacks, or has in another form.
    pub fn add_property(&mut self, root: &NodePath, node: &NodePath, what: impl AsRef<str>) {
        let what = what.as_ref();
        let line = match node.relative_to(root) {
            Some(below) if !below.is_empty() => format!("{below}: {what}"),
            _ if node == root => what.to_owned(),
            // A coordinate beside the array.
            _ => format!("{}: {what}", node.name().unwrap_or_default()),
        };
        if self.properties.contains(&line) {
            return;
        }
        self.property_count = self.property_count.saturating_add(1);
        if self.properties.len() < MOST_NAMED {
            self.properties.push(line);
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

    /// Returns the number of nodes that could not be read: any format would lack them.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// Returns a line for each node, without line ends.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let more = (self.more() > 0).then(|| format!("and {} more", self.more()));
        self.nodes.iter().map(|(name, why)| format!("{name}: {why}")).chain(more)
    }

    /// Returns a line for each property.
    pub fn properties(&self) -> impl Iterator<Item = String> + '_ {
        let more = self.property_count.saturating_sub(self.properties.len());
        let more = (more > 0).then(|| format!("and {more} more"));
        self.properties.iter().cloned().chain(more)
    }
}

/// Returns the names in a line, at most [`MOST_NAMES`] of them.
pub(in crate::view) fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    let list = names.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}
