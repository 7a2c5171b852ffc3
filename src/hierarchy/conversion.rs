//! Directories that become arrays: files that programs wrote turn into chunks.

use std::sync::Arc;

use super::documents::{Planned, Replaced, Taken};
use super::intent::{Documents, Intent, MAX_LEN, Stage};
use super::node::Document;
use super::nodes::Hierarchy;
use super::raise::Raised;
use super::recover::{CHUNKS, FILES};
use super::whole::leave_copies;
use crate::array::Array;
use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;
use crate::store::{Aside, Key, Prefix};

/// A directory that becomes an array.
#[derive(Debug)]
struct Conversion<'a> {
    planned: Planned,
    aside: &'a Aside,
    /// Where each file is kept, and its key.
    files: Vec<(Key, Key)>,
    /// The key of each chunk, and where it is encoded.
    chunks: Vec<(Key, Key)>,
    /// Where chunks are encoded, and where they belong.
    trees: (Prefix, Prefix),
    /// With the stage before any chunk has its key.
    documents: Documents,
}

impl Hierarchy {
    /// A place in the store for what a directory gets that becomes an array.
    pub fn aside(&self) -> Result<Aside> {
        self.store().write()?.aside()
    }

    /// `array` as if its chunks lay in `aside`.
    pub fn bind_aside(&self, array: &Array, aside: &Aside) -> Result<Arc<Array>> {
        let (model, prefix) = (array.model().clone(), aside.prefix().join(CHUNKS)?);
        Ok(Arc::new(Array::open(
            model,
            self.store(),
            prefix,
            self.options.max_chunk_len,
            self.options.layout,
        )?))
    }

    /// What was put aside is not needed.
    pub fn drop_aside(&self, aside: &Aside) {
        self.end(aside);
    }

    /// Makes an array of a directory whose chunks are encoded in `aside`. The `files` that they were go, and so do
    /// the documents of `groups`, which are directories of the array from now on. Where that fails nothing has changed.
    ///
    /// The files go aside, the chunks take their keys, and the document comes last: who finds the array finds its chunks.
    pub fn put_converted(
        &self,
        path: &NodePath,
        raised: &Raised,
        replaced: Option<&Document>,
        (aside, files, groups): (&Aside, &[Key], &[NodePath]),
    ) -> Result<()> {
        let planned = self.plan_conversion(path, raised, replaced, (aside, files, groups));
        let conversion = planned.inspect_err(|_| self.end(aside))?;
        let taken = Taken::default();
        let converted = self.convert(&conversion, &taken);
        self.invalidate_below(path);
        if let Err(error) = converted {
            match self.undo_conversion(&conversion, &taken, &error) {
                Ok(()) => self.end(aside),
                Err(undone) => log::warn!(
                    "{path}: a failed change could not be undone: {undone}; the next mount will \
                     undo it"
                ),
            }
            self.invalidate_below(path);
            return Err(error);
        }
        self.known_as_stored(path);
        match self.renew_copies(path) {
            Ok(()) => self.end(aside),
            // The array is there.
            Err(error) => leave_copies(path, &error),
        }
        Ok(())
    }

    fn plan_conversion<'a>(
        &self,
        path: &NodePath,
        raised: &Raised,
        replaced: Option<&Document>,
        (aside, files, groups): (&'a Aside, &[Key], &[NodePath]),
    ) -> Result<Conversion<'a>> {
        self.store_groups_above(path)?;
        let text = self.text_to_store(path, raised)?;
        let planned = self.documents.plan(path, raised.key(), &text, Replaced::of(replaced))?;
        // Before anything moves: the files may be chunks by now, of an array that somebody else has made.
        self.documents.check(&planned)?;
        let mut all = files.to_vec();
        for group in groups {
            if let Some(document) = self.node(group)?.and_then(|node| node.stored().cloned()) {
                all.extend(document.keys());
            }
        }
        let kept = aside.prefix().join(FILES)?;
        let put_aside = |key: Key| Ok((kept.key(key.as_str())?, key));
        let files = all.into_iter().map(put_aside).collect::<Result<_>>()?;
        let list = self.store().list();
        let list = list.ok_or_else(|| Error::unsupported("the store cannot list its keys"))?;
        let (encoded, target) = (aside.prefix().join(CHUNKS)?, self.dialect().chunk_prefix(path)?);
        let chunk = |key: Result<Key>| {
            let key = key?;
            let relative = key.as_str().strip_prefix(encoded.as_str()).unwrap_or_default();
            Ok((target.key(relative)?, key))
        };
        let chunks = list.list_prefix(&encoded)?.map(chunk).collect::<Result<_>>()?;
        let documents = Documents {
            path: path.clone(),
            steps: planned.steps(),
            consolidated: None,
            was: None,
            stage: Some(Stage::Files),
        };
        self.declare(aside, &Intent::Documents(documents.clone()))?;
        Ok(Conversion { planned, aside, files, chunks, trees: (encoded, target), documents })
    }

    fn convert(&self, conversion: &Conversion<'_>, taken: &Taken) -> Result<()> {
        let Conversion { planned, aside, files, trees, documents, .. } = conversion;
        let write = self.store().write()?;
        for (kept, file) in files {
            write.move_value(file, kept)?;
        }
        let documents = Documents { stage: Some(Stage::Chunks), ..documents.clone() };
        self.declare(aside, &Intent::Documents(documents))?;
        write.move_prefix(&trees.0, &trees.1)?;
        self.documents.apply(planned.clone(), taken).map(drop)
    }

    /// How far a directory has come, by what is declared of it.
    fn declared_stage(&self, aside: &Aside) -> Result<Option<Stage>> {
        let declared = self.store().get(&aside.declaration()?, MAX_LEN)?;
        let intent = declared.map(|declared| Intent::parse(&declared.bytes)).transpose()?;
        Ok(match intent {
            Some((_, _, Intent::Documents(documents))) => documents.stage,
            _ => None,
        })
    }

    /// Puts everything back. At every instant what is declared can be done with what is there.
    fn undo_conversion(
        &self,
        conversion: &Conversion<'_>,
        taken: &Taken,
        error: &Error,
    ) -> Result<()> {
        let Conversion { aside, chunks, documents, .. } = conversion;
        if self.undo_documents(documents, taken.get(), error)? {
            return Err(Error::new(Kind::Exists, "its metadata file exists"));
        }
        let write = self.store().write()?;
        if self.declared_stage(aside)? == Some(Stage::Chunks) {
            for (key, encoded) in chunks {
                write.move_value(key, encoded)?;
            }
        }
        self.declare(aside, &Intent::Documents(documents.clone()))?;
        write.move_prefix(&aside.prefix().join(FILES)?, &Prefix::root())?;
        self.invalidate_below(&documents.path);
        self.renew_copies(&documents.path)
    }
}
