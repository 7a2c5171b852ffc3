//! Turns directories into arrays: files that programs wrote become chunks.

use std::sync::Arc;

use super::atomic::leave_copies;
use super::change::Changes;
use super::documents::{Planned, Replaced, StepsDone};
use super::intent::{Documents, Intent, Stage, max_len};
use super::node::Document;
use super::raise::Raised;
use super::recover::{CHUNKS, FILES};
use crate::array::Array;
use crate::metadata::NodePath;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_store::{Aside, Key, Prefix};

/// A directory that becomes an array.
#[derive(Debug)]
struct Conversion<'a> {
    planned: Planned,
    aside: &'a Aside,
    /// The temporary key of each file, and its own key.
    files: Vec<(Key, Key)>,
    /// The key of each chunk, and the temporary key with its encoded bytes.
    chunks: Vec<(Key, Key)>,
    /// The prefix of the encoded chunks now, and their final prefix.
    trees: (Prefix, Prefix),
    /// The change of the document, at the stage before any chunk is at its key.
    documents: Documents,
}

/// The contents of a directory that becomes an array.
#[derive(Debug, Clone, Copy)]
pub struct ConvertedFiles<'a> {
    /// The place with the encoded chunks.
    pub aside: &'a Aside,
    /// The files that were encoded.
    pub files: &'a [Key],
    /// The groups without attributes.
    pub groups: &'a [NodePath],
}

impl Changes<'_> {
    /// Returns a private place in the store for a directory that becomes an array.
    pub fn aside(self) -> Result<Aside> {
        self.hierarchy.store().write()?.aside()
    }

    /// Returns `array` with its chunks in `aside`.
    pub fn bind_aside(self, array: &Array, aside: &Aside) -> Result<Arc<Array>> {
        let (model, prefix) = (array.model().clone(), aside.prefix().join(CHUNKS)?);
        Ok(Arc::new(Array::open(
            model,
            self.hierarchy.store(),
            prefix,
            self.hierarchy.array_options(),
        )?))
    }

    /// Discards `aside` and its contents.
    pub fn drop_aside(self, aside: &Aside) {
        self.atomic().end(aside);
    }

    /// Turns a directory into an array. Its chunks are already encoded in `aside`; `files` are the
    /// files that they replace, and `groups` are nodes below it that become plain directories of
    /// the array. On failure nothing changes.
    ///
    /// First the files move aside, then the chunks move to their keys, and the document is stored
    /// last: a program that finds the array also finds its chunks.
    pub fn put_converted(
        self,
        path: &NodePath,
        raised: &Raised,
        replaced: Option<&Document>,
        from: ConvertedFiles<'_>,
    ) -> Result<()> {
        let aside = from.aside;
        let checked = match replaced {
            None => self
                .check_is_new(path, raised.key())
                .and_then(|()| self.hierarchy.check_directories(path)),
            Some(_) => Ok(()),
        };
        let planned = checked.and_then(|()| self.plan_conversion(path, raised, replaced, from));
        let conversion = planned.inspect_err(|_| self.atomic().end(aside))?;
        let taken = StepsDone::default();
        let converted = self.convert(&conversion, &taken);
        self.hierarchy.invalidate_below(path);
        if let Err(error) = converted {
            match self.undo_conversion(&conversion, &taken, &error) {
                Ok(()) => self.atomic().end(aside),
                Err(undone) => log::warn!(
                    "{path}: a failed change could not be undone: {undone}; the next mount will \
                     undo it"
                ),
            }
            self.hierarchy.invalidate_below(path);
            return Err(error);
        }
        self.hierarchy.forget_unstored(path);
        match self.copies().rebuild_copies(path) {
            Ok(()) => self.atomic().end(aside),
            // The array itself is complete.
            Err(error) => leave_copies(path, &error),
        }
        Ok(())
    }

    fn plan_conversion<'a>(
        self,
        path: &NodePath,
        raised: &Raised,
        replaced: Option<&Document>,
        from: ConvertedFiles<'a>,
    ) -> Result<Conversion<'a>> {
        let ConvertedFiles { aside, files, groups } = from;
        self.store_groups_above(path)?;
        let text = self.hierarchy.text_to_store(path, raised)?;
        let home = self.home_of_stored(path)?;
        let replaces = Replaced::of(replaced);
        let planned =
            self.hierarchy.documents.plan((path, &home), raised.key(), &text, replaces)?;
        // Before anything moves: the files may be chunks of an array that another program created
        // meanwhile.
        self.hierarchy.documents.check(&planned, self.since())?;
        let mut all = files.to_vec();
        for group in groups {
            if let Some(document) = self.node(group)?.and_then(|node| node.stored().cloned()) {
                all.extend(document.keys());
            }
        }
        let kept = aside.prefix().join(FILES)?;
        let put_aside = |key: Key| Ok((kept.key(key.as_str())?, key));
        let files = all.into_iter().map(put_aside).collect::<Result<_>>()?;
        let list = self.hierarchy.store().list();
        let list = list.ok_or_else(|| Error::unsupported("the store cannot list its keys"))?;
        let (encoded, target) =
            (aside.prefix().join(CHUNKS)?, self.hierarchy.dialect().chunk_prefix(path)?);
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
            stage: Some(Stage::Files),
        };
        self.atomic().declare(aside, &Intent::Documents(documents.clone()))?;
        Ok(Conversion { planned, aside, files, chunks, trees: (encoded, target), documents })
    }

    fn convert(self, conversion: &Conversion<'_>, taken: &StepsDone) -> Result<()> {
        let Conversion { planned, aside, files, trees, documents, .. } = conversion;
        let store = self.hierarchy.store().in_directory(planned.home());
        let write = store.write()?;
        for (kept, file) in files {
            write.move_value(file, kept)?;
        }
        let documents = Documents { stage: Some(Stage::Chunks), ..documents.clone() };
        self.atomic().declare(aside, &Intent::Documents(documents))?;
        write.move_prefix(&trees.0, &trees.1)?;
        self.hierarchy.documents.apply(planned.clone(), taken).map(drop)
    }

    /// Returns the declared progress of a conversion.
    fn declared_stage(self, aside: &Aside) -> Result<Option<Stage>> {
        let declared = self.hierarchy.store().get(&aside.declaration()?, max_len())?;
        let intent = declared.map(|declared| Intent::parse(&declared.bytes)).transpose()?;
        Ok(match intent {
            Some((_, _, Intent::Documents(documents))) => documents.stage,
            _ => None,
        })
    }

    /// Moves everything back. The declaration in the store matches the files at every instant.
    fn undo_conversion(
        self,
        conversion: &Conversion<'_>,
        taken: &StepsDone,
        error: &Error,
    ) -> Result<()> {
        let Conversion { planned, aside, files, chunks, documents, .. } = conversion;
        if self.atomic().undo_documents(documents, taken.get(), error)? {
            return Err(Error::new(Kind::Exists, "its metadata file exists"));
        }
        // If another program has moved the directory, its files stay aside until the next mount.
        let store = self.hierarchy.store().in_directory(planned.home());
        let write = store.write()?;
        if self.declared_stage(aside)? == Some(Stage::Chunks) {
            for (key, encoded) in chunks {
                write.move_value(key, encoded)?;
            }
        }
        self.atomic().declare(aside, &Intent::Documents(documents.clone()))?;
        for (kept, file) in files {
            write.move_value(kept, file)?;
        }
        self.hierarchy.invalidate_below(&documents.path);
        self.copies().rebuild_copies(&documents.path)
    }
}
