//! Well-known text of coordinate reference systems (OGC 01-009 and ISO 19162): as much as names its
//! kind, its code and its ellipsoid.

/// The deepest nesting of a text.
const DEEPEST: usize = 64;

/// A keyword with its arguments in brackets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'t> {
    pub keyword: &'t str,
    /// The text between the brackets.
    inner: &'t str,
}

impl<'t> Item<'t> {
    /// Returns the item that a text consists of.
    pub fn parse(text: &'t str) -> Option<Self> {
        let (keyword, rest) = text.trim().split_once(['[', '('])?;
        let inner = rest.trim_end().strip_suffix([']', ')'])?;
        let is_word = keyword.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        (is_word && !keyword.is_empty()).then_some(Self { keyword: keyword.trim(), inner })
    }

    /// Returns the arguments, which are texts in quotes, numbers or items.
    pub fn arguments(self) -> Vec<&'t str> {
        let (mut depth, mut is_quoted, mut start) = (0_usize, false, 0);
        let mut found = Vec::new();
        for (at, char) in self.inner.char_indices() {
            match char {
                '"' => is_quoted = !is_quoted,
                _ if is_quoted => {}
                '[' | '(' => depth = depth.saturating_add(1),
                ']' | ')' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    found.extend(self.inner.get(start..at));
                    start = at.saturating_add(1);
                }
                _ => {}
            }
            if depth > DEEPEST {
                return Vec::new();
            }
        }
        found.extend(self.inner.get(start..));
        found.into_iter().map(str::trim).collect()
    }

    /// Returns the items among the arguments.
    pub fn items(self) -> impl Iterator<Item = Self> {
        self.arguments().into_iter().filter_map(Item::parse)
    }

    /// Returns the first item with one of these keywords, also inside of other items.
    pub fn find(self, keywords: &[&str]) -> Option<Self> {
        self.find_at(keywords, 0)
    }

    fn find_at(self, keywords: &[&str], depth: usize) -> Option<Self> {
        if keywords.iter().any(|keyword| self.keyword.eq_ignore_ascii_case(keyword)) {
            return Some(self);
        }
        if depth >= 8 {
            return None;
        }
        self.items().find_map(|item| item.find_at(keywords, depth.saturating_add(1)))
    }

    /// Returns the name, the first argument in quotes.
    pub fn name(self) -> Option<&'t str> {
        self.arguments().first()?.strip_prefix('"')?.strip_suffix('"')
    }

    /// Returns the code of the item in the registry of EPSG.
    pub fn code(self) -> Option<u16> {
        let is_id = |item: &Item<'_>| {
            ["ID", "AUTHORITY"].iter().any(|id| item.keyword.eq_ignore_ascii_case(id))
        };
        let id = self.items().find(is_id)?;
        let arguments = id.arguments();
        let [authority, code, ..] = arguments.as_slice() else { return None };
        let is_epsg = authority.trim_matches('"').eq_ignore_ascii_case("EPSG");
        code.trim_matches('"').parse().ok().filter(|_| is_epsg)
    }
}
