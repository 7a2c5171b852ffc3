//! The names directly below a prefix, in a sorted list of paths.

use std::collections::BTreeSet;

/// Returns the first components after `prefix` of all paths that begin with it. `path` returns the
/// path of each index below `count`; they are sorted by their bytes. Goes through each child, not
/// through what lies below it.
pub(crate) fn children<'p>(
    count: usize,
    path: impl Fn(usize) -> &'p str,
    prefix: &str,
) -> BTreeSet<&'p str> {
    let first_from = |start: usize, text: &str| {
        // A binary search for the first path that is not before `text`.
        let (mut low, mut high) = (start, count);
        while low < high {
            let middle = low.midpoint(high);
            if path(middle) < text {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low
    };
    let mut found = BTreeSet::new();
    let mut at = first_from(0, prefix);
    while at < count {
        let Some(rest) = path(at).strip_prefix(prefix) else { break };
        at = if let Some((name, _)) = rest.split_once('/') {
            found.insert(name);
            // '0' follows '/', so this is behind all paths below the child.
            first_from(at, &format!("{prefix}{name}0"))
        } else {
            if !rest.is_empty() {
                found.insert(rest);
            }
            at.saturating_add(1)
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn children_are_the_first_components_of_all_paths(
            mut paths in prop::collection::vec("[a-b0/-]{1,6}", 0..20),
            prefix in prop::sample::select(vec!["", "a/", "a/b/", "b/"]),
        ) {
            paths.retain(|path| path.split('/').all(|name| !name.is_empty()));
            paths.sort();
            paths.dedup();
            let below = paths.iter().filter_map(|path| path.strip_prefix(prefix));
            let want: BTreeSet<&str> =
                below.map(|rest| rest.split('/').next().unwrap()).filter(|it| !it.is_empty()).collect();
            prop_assert_eq!(children(paths.len(), |at| paths[at].as_str(), prefix), want);
        }
    }
}
