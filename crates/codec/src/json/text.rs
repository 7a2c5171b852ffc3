//! Edits the string of a metadata file. All bytes outside of the edited members stay the same.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde_json::Value;

use super::{Scanner, check, compact, decode, describe, max_text_len, quoted};
use zarrfs_base::error::{Error, Kind, Result};

/// The string of a metadata file, whose members can be set and removed in place.
///
/// The names of objects from the root down form the path of a member. Inserted members follow the
/// existing indentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(String);

/// The place of a member in the string.
#[derive(Debug, Clone)]
struct Member {
    key: String,
    key_start: usize,
    value: Range<usize>,
}

/// The new value of a member.
#[derive(Debug, Clone, Copy)]
pub enum NewValue<'v> {
    /// A value, which is printed.
    Value(&'v Value),
    /// A string: numbers, strings and bare words keep every byte.
    Text(&'v Text),
}

/// A change of a member: its name, and the new value, or `None` to remove it.
pub type MemberEdit<'v> = (&'v str, Option<NewValue<'v>>);

/// The layout of a metadata file.
#[derive(Debug, Clone)]
struct TextLayout {
    /// One level of indentation, `None` if the document is on one line.
    indent: Option<String>,
    /// The end of a line.
    newline: &'static str,
    /// The string after a name: `:` or `: `.
    colon: &'static str,
    /// The separator of two items on one line: `,` or `, `.
    comma: &'static str,
}

impl Text {
    /// Returns `text` if it is valid.
    pub fn parse(text: &[u8]) -> Result<Self> {
        check(text)?;
        decode(text, max_text_len()).map(|(text, _)| Self(text.to_owned()))
    }

    /// Returns the current string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the current string.
    pub fn into_string(self) -> String {
        self.0
    }

    /// Sets the member at `path`. Creates objects on the way that are missing or null.
    pub fn set(&mut self, path: &[&str], value: &Value) -> Result<()> {
        self.set_to(path, NewValue::Value(value))
    }

    /// Like [`Text::set`] with the value in `text`: numbers, strings and bare words keep every
    /// byte.
    pub fn set_text(&mut self, path: &[&str], text: &Self) -> Result<()> {
        self.set_to(path, NewValue::Text(text))
    }

    fn set_to(&mut self, path: &[&str], value: NewValue<'_>) -> Result<()> {
        let layout = self.layout()?;
        let mut object = self.root();
        for (at, name) in path.iter().enumerate() {
            let (depth, below) = (at + 1, path.get(at + 1..).unwrap_or_default());
            let members = self.members(&object)?;
            let lines = self.has_lines(&object) || (members.is_empty() && layout.indent.is_some());
            let Some(member) = members.iter().rev().find(|member| member.key == *name) else {
                let text = layout.print(below, value, depth, lines);
                let name = quoted(name);
                let member = format!("{name}{}{text}", layout.colon);
                self.insert(&object, &members, &[member], depth, &layout);
                return Ok(());
            };
            let old = self.slice(&member.value);
            if below.is_empty() || old == "null" {
                let text = layout.print(below, value, depth, gets_lines(old, lines));
                self.0.replace_range(member.value.clone(), &text);
                return Ok(());
            }
            object = member.value.clone();
        }
        Err(Error::invalid("an empty path names no member"))
    }

    /// Sets and removes members of the object at `path` in one pass, as [`Text::set`] and
    /// [`Text::remove`] do one by one. The last change of a name counts.
    pub fn edit(&mut self, path: &[&str], changes: &[MemberEdit<'_>]) -> Result<()> {
        let Some(at) = changes.iter().position(|(_, value)| value.is_some()) else {
            let names: HashSet<&str> = changes.iter().map(|(name, _)| *name).collect();
            return self.remove_members(path, |member| names.contains(member));
        };
        let Some(object) = self.find(path)?.filter(|found| self.slice(found) != "null") else {
            // Setting the first member creates the object. There is nothing to remove before it.
            let Some(((name, Some(value)), rest)) = changes.get(at..).and_then(<[_]>::split_first)
            else {
                return Ok(());
            };
            self.set_to(&[path, &[name]].concat(), *value)?;
            return self.edit(path, rest);
        };
        let wanted: HashMap<&str, Option<NewValue<'_>>> = changes.iter().copied().collect();
        let (layout, members) = (self.layout()?, self.members(&object)?);
        let known = self.replace(&object, &members, &wanted, path.len() + 1, &layout);
        self.remove_members(path, |member| matches!(wanted.get(member), Some(None)))?;
        self.append(path, changes, &wanted, known, &layout)
    }

    /// Replaces the values of those of the `members` of an object at `depth` that get another one.
    /// Returns the names of all members.
    fn replace(
        &mut self,
        object: &Range<usize>,
        members: &[Member],
        wanted: &HashMap<&str, Option<NewValue<'_>>>,
        depth: usize,
        layout: &TextLayout,
    ) -> HashSet<String> {
        let lines = self.has_lines(object);
        // The last of several members with the same name counts.
        let last: HashMap<&str, usize> =
            members.iter().enumerate().map(|(at, member)| (member.key.as_str(), at)).collect();
        let mut edited = String::with_capacity(self.0.len());
        let mut from = 0;
        for (at, member) in members.iter().enumerate() {
            let is_last = last.get(member.key.as_str()) == Some(&at);
            if let Some(Some(value)) = wanted.get(member.key.as_str()).filter(|_| is_last) {
                let on_lines = gets_lines(self.slice(&member.value), lines);
                edited.push_str(self.slice(&(from..member.value.start)));
                edited.push_str(&layout.print(&[], *value, depth, on_lines));
                from = member.value.end;
            }
        }
        edited.push_str(self.slice(&(from..self.0.len())));
        self.0 = edited;
        last.into_keys().map(str::to_owned).collect()
    }

    /// Adds those members at the end of the object at `path` that it does not have.
    fn append(
        &mut self,
        path: &[&str],
        changes: &[MemberEdit<'_>],
        wanted: &HashMap<&str, Option<NewValue<'_>>>,
        mut known: HashSet<String>,
        layout: &TextLayout,
    ) -> Result<()> {
        let object = self.find(path)?;
        let object = object.ok_or_else(|| Error::new(Kind::Internal, "an object has gone"))?;
        let (members, depth) = (self.members(&object)?, path.len() + 1);
        let lines = self.has_lines(&object) || (members.is_empty() && layout.indent.is_some());
        let mut printed = Vec::new();
        for (name, _) in changes {
            let Some(Some(value)) = wanted.get(name) else { continue };
            if known.insert((*name).to_owned()) {
                let text = layout.print(&[], *value, depth, lines);
                printed.push(format!("{}{}{text}", quoted(name), layout.colon));
            }
        }
        if !printed.is_empty() {
            self.insert(&object, &members, &printed, depth, layout);
        }
        Ok(())
    }

    /// Returns the names of the members of the object at `path`, `None` if there is no object.
    pub fn names(&self, path: &[&str]) -> Result<HashSet<String>> {
        Ok(self.texts(path)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns the members of the object at `path`, each with its text; none if there is no object.
    pub fn texts(&self, path: &[&str]) -> Result<Vec<(String, &str)>> {
        match self.find(path)?.filter(|span| self.slice(span).starts_with('{')) {
            Some(object) => {
                let members = self.members(&object)?.into_iter();
                Ok(members.map(|member| (member.key, self.slice(&member.value))).collect())
            }
            None => Ok(Vec::new()),
        }
    }

    /// Returns the text of the member at `path`.
    pub fn member(&self, path: &[&str]) -> Result<Option<&str>> {
        Ok(self.find(path)?.map(|span| self.slice(&span)))
    }

    /// Appends a member whose value is already a string; none of its bytes change. Removes an
    /// existing member with this name.
    pub fn append_raw(&mut self, name: &str, value: &str) -> Result<()> {
        self.remove(&[name])?;
        let object = self.root();
        let members = self.members(&object)?;
        let name = quoted(name);
        if let Some(last) = members.last() {
            let end = last.value.end;
            self.0.replace_range(end..end, &format!(",{name}:{value}"));
        } else {
            let start = object.start + 1;
            self.0.replace_range(start..start, &format!("{name}:{value}"));
        }
        Ok(())
    }

    /// Sets the item `index` of the list at `path`.
    pub fn set_item(&mut self, path: &[&str], index: usize, value: &Value) -> Result<()> {
        let found = self.find(path)?;
        let mut spans = Vec::new();
        if let Some(list) = found.filter(|list| self.slice(list).starts_with('[')) {
            let mut scanner = Scanner::new(&self.0, list.start);
            scanner.items(|scanner| {
                let start = scanner.skip();
                spans.push(start..scanner.at);
                Ok(())
            })?;
        }
        let span = spans
            .get(index)
            .cloned()
            .ok_or_else(|| Error::invalid(format!("`{}` has no item {index}", path.join("/"))))?;
        self.0.replace_range(span, &compact(value));
        Ok(())
    }

    /// Removes the member at `path`, and any others with the same name. Does nothing if there is
    /// none.
    pub fn remove(&mut self, path: &[&str]) -> Result<()> {
        match path.split_last() {
            Some((name, parents)) => self.remove_members(parents, |member| member == *name),
            None => Ok(()),
        }
    }

    /// Removes every member of the object at `path` whose name satisfies `matches`. Does nothing
    /// if there is no object.
    pub fn remove_members(&mut self, path: &[&str], matches: impl Fn(&str) -> bool) -> Result<()> {
        let Some(object) = self.find(path)?.filter(|span| self.slice(span).starts_with('{')) else {
            return Ok(());
        };
        let members = self.members(&object)?;
        let mut kept = String::with_capacity(self.0.len());
        let mut from = 0;
        for cut in cuts(&members, matches, &object) {
            kept.push_str(self.slice(&(from..cut.start)));
            from = cut.end;
        }
        kept.push_str(self.slice(&(from..self.0.len())));
        self.0 = kept;
        Ok(())
    }

    /// Sorts the members of the object at `path` by the keys of their names. Does nothing if there
    /// is no object.
    pub fn sort_members<K: Ord>(&mut self, path: &[&str], key: impl Fn(&str) -> K) -> Result<()> {
        let Some(object) = self.find(path)?.filter(|span| self.slice(span).starts_with('{')) else {
            return Ok(());
        };
        let members = self.members(&object)?;
        let mut sorted: Vec<&Member> = members.iter().collect();
        sorted.sort_by_cached_key(|member| key(&member.key));
        let mut text = String::with_capacity(self.0.len());
        let mut from = 0;
        for (place, member) in members.iter().zip(sorted) {
            text.push_str(self.slice(&(from..place.key_start)));
            text.push_str(self.slice(&(member.key_start..member.value.end)));
            from = place.value.end;
        }
        text.push_str(self.slice(&(from..self.0.len())));
        self.0 = text;
        Ok(())
    }

    /// Returns the place of the value at `path`.
    fn find(&self, path: &[&str]) -> Result<Option<Range<usize>>> {
        let mut object = self.root();
        for name in path {
            if !self.slice(&object).starts_with('{') {
                return Ok(None);
            }
            let members = self.members(&object)?;
            let Some(member) = members.into_iter().rev().find(|member| member.key == *name) else {
                return Ok(None);
            };
            object = member.value;
        }
        Ok(Some(object))
    }

    /// Returns the place of the root value.
    fn root(&self) -> Range<usize> {
        let body = self.0.trim_start_matches(['\u{feff}', ' ', '\t', '\n', '\r']);
        let start = self.0.len() - body.len();
        start..start + body.trim_end().len()
    }

    fn slice(&self, span: &Range<usize>) -> &str {
        self.0.get(span.clone()).unwrap_or_default()
    }

    fn members(&self, object: &Range<usize>) -> Result<Vec<Member>> {
        if !self.slice(object).starts_with('{') {
            let value = super::parse(self.slice(object).as_bytes())?;
            return Err(Error::invalid(format!("{}, expected an object", describe(&value))));
        }
        let mut members = Vec::new();
        let mut scanner = Scanner::new(&self.0, object.start);
        scanner.members(|scanner, key, key_start| {
            let start = scanner.skip();
            members.push(Member { key, key_start, value: start..scanner.at });
            Ok(())
        })?;
        Ok(members)
    }

    /// Returns the names of the root's members, each with the string from its name to the end of
    /// its value.
    #[cfg(test)]
    pub(super) fn members_for_test(&self) -> Vec<(String, String)> {
        let members = self.members(&self.root()).unwrap_or_default();
        let text = |member: &Member| self.slice(&(member.key_start..member.value.end)).to_owned();
        members.iter().map(|member| (member.key.clone(), text(member))).collect()
    }

    /// Whether the members of an object are on separate lines.
    fn has_lines(&self, object: &Range<usize>) -> bool {
        let text = self.slice(object);
        let body = text.strip_prefix('{').unwrap_or(text);
        body.bytes().take_while(u8::is_ascii_whitespace).any(|byte| byte == b'\n')
    }

    /// Adds members, already as strings, at the end of an object with members at `depth`.
    fn insert(
        &mut self,
        object: &Range<usize>,
        members: &[Member],
        new: &[String],
        depth: usize,
        layout: &TextLayout,
    ) {
        let Some(last) = members.last() else {
            let body = match &layout.indent {
                Some(indent) => {
                    let newline = layout.newline;
                    let (inner, outer) = (indent.repeat(depth), indent.repeat(depth - 1));
                    let new = new.join(&format!(",{newline}{inner}"));
                    format!("{{{newline}{inner}{new}{newline}{outer}}}")
                }
                None => format!("{{{}}}", new.join(layout.comma)),
            };
            self.0.replace_range(object.clone(), &body);
            return;
        };
        let lead = members.first().map_or(0..0, |first| object.start + 1..first.key_start);
        let separator = if self.slice(&lead).contains('\n') {
            format!(",{}", self.slice(&lead))
        } else {
            layout.comma.to_owned()
        };
        let end = last.value.end;
        self.0.replace_range(end..end, &format!("{separator}{}", new.join(&separator)));
    }

    /// Returns the layout, which the first members of the metadata file show.
    fn layout(&self) -> Result<TextLayout> {
        let root = self.root();
        let newline = if self.0.contains("\r\n") { "\r\n" } else { "\n" };
        let mut layout = TextLayout { indent: None, newline, colon: ": ", comma: ", " };
        if !self.slice(&root).starts_with('{') {
            return Ok(layout);
        }
        let members = self.members(&root)?;
        let Some(first) = members.first() else {
            return Ok(layout);
        };
        let lead = self.slice(&(root.start + 1..first.key_start));
        if let Some((_, indent)) = lead.rsplit_once('\n') {
            layout.indent = Some(indent.to_owned());
        }
        if self.slice(&(first.key_start..first.value.start)).ends_with(':') {
            layout.colon = ":";
            layout.comma = ",";
        }
        Ok(layout)
    }
}

/// Returns the ranges to cut, in order, to remove members, each with one comma.
fn cuts(
    members: &[Member],
    matches: impl Fn(&str) -> bool,
    object: &Range<usize>,
) -> Vec<Range<usize>> {
    let matches = |member: &Member| matches(&member.key);
    if !members.is_empty() && members.iter().all(matches) {
        let inside = object.start + 1..object.end.saturating_sub(1);
        return std::iter::once(inside).collect();
    }
    // A cut includes the comma before the member, or the one after it if no member remains before
    // it.
    let mut cuts = Vec::new();
    let mut some_stay = false;
    for (at, member) in members.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| members.get(before));
        match (matches(member), before, members.get(at + 1)) {
            (false, _, _) => some_stay = true,
            (true, Some(before), _) if some_stay => cuts.push(before.value.end..member.value.end),
            (true, _, Some(after)) => cuts.push(member.key_start..after.key_start),
            (true, _, None) => {}
        }
    }
    cuts
}

/// Whether the value that replaces `old` is on several lines, in an object with `lines`.
fn gets_lines(old: &str, lines: bool) -> bool {
    let had_none = old.starts_with(['{', '[']) && !matches!(old, "{}" | "[]");
    old.contains('\n') || (lines && !had_none)
}

impl TextLayout {
    /// Returns `value` as a string at `depth`, inside objects with the names `below`: on several
    /// lines if the metadata file is and `lines` is true.
    fn print(&self, below: &[&str], value: NewValue<'_>, depth: usize, lines: bool) -> String {
        let mut text = String::new();
        let indent = self.indent.as_deref().filter(|_| lines);
        for (at, name) in below.iter().enumerate() {
            text.push('{');
            self.line(&mut text, depth + at + 1, indent);
            text.push_str(&quoted(name));
            text.push_str(self.colon);
        }
        match value {
            NewValue::Value(value) => {
                self.print_into(&mut text, value, depth + below.len(), indent);
            }
            NewValue::Text(value) => {
                let value = value.slice(&value.root());
                self.lay_out(&mut text, value, depth + below.len(), indent);
            }
        }
        for at in (0..below.len()).rev() {
            self.line(&mut text, depth + at, indent);
            text.push('}');
        }
        text
    }

    /// Begins a line at `depth`, if there are lines.
    fn line(&self, text: &mut String, depth: usize, indent: Option<&str>) {
        if let Some(indent) = indent {
            text.push_str(self.newline);
            text.push_str(&indent.repeat(depth));
        }
    }

    /// Appends `value`, already a string, with new white space.
    fn lay_out(&self, text: &mut String, value: &str, mut depth: usize, indent: Option<&str>) {
        let comma = if indent.is_some() { "," } else { self.comma };
        let mut scanner = Scanner::new(value, 0);
        scanner.space();
        while let Some(byte) = scanner.peek() {
            let start = scanner.at;
            match byte {
                b'"' => {
                    scanner.skip_string();
                    text.push_str(value.get(start..scanner.at).unwrap_or_default());
                }
                b'{' | b'[' => {
                    scanner.at += 1;
                    scanner.space();
                    text.push(char::from(byte));
                    if let Some(end @ (b'}' | b']')) = scanner.peek() {
                        scanner.at += 1;
                        text.push(char::from(end));
                    } else {
                        depth += 1;
                        self.line(text, depth, indent);
                    }
                }
                b'}' | b']' => {
                    scanner.at += 1;
                    depth = depth.saturating_sub(1);
                    self.line(text, depth, indent);
                    text.push(char::from(byte));
                }
                b',' | b':' => {
                    scanner.at += 1;
                    text.push_str(if byte == b',' { comma } else { self.colon });
                    if byte == b',' {
                        self.line(text, depth, indent);
                    }
                }
                // A number or a word.
                _ => text.push_str(value.get(start..scanner.skip_scalar()).unwrap_or_default()),
            }
            scanner.space();
        }
    }

    fn print_into(&self, text: &mut String, value: &Value, depth: usize, indent: Option<&str>) {
        let line = |text: &mut String, depth: usize| self.line(text, depth, indent);
        let comma = if indent.is_some() { "," } else { self.comma };
        match value {
            Value::Object(members) if !members.is_empty() => {
                text.push('{');
                for (at, (key, member)) in members.iter().enumerate() {
                    text.push_str(if at == 0 { "" } else { comma });
                    line(text, depth + 1);
                    text.push_str(&quoted(key));
                    text.push_str(self.colon);
                    self.print_into(text, member, depth + 1, indent);
                }
                line(text, depth);
                text.push('}');
            }
            Value::Array(items) if !items.is_empty() => {
                text.push('[');
                for (at, item) in items.iter().enumerate() {
                    text.push_str(if at == 0 { "" } else { comma });
                    line(text, depth + 1);
                    self.print_into(text, item, depth + 1, indent);
                }
                line(text, depth);
                text.push(']');
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => text.push_str(&compact(value)),
        }
    }
}
