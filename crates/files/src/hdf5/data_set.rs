//! A data set, as its header describes it.

use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::external_files::ExternalFilesMessage;
use hdf5_reader::messages::fill_value::{FillTime, FillValueMessage};
use hdf5_reader::messages::filter_pipeline::FilterPipelineMessage;
use hdf5_reader::messages::layout::DataLayout;
use hdf5_reader::{Attribute, Datatype, Hdf5File};

use super::header::{HeapPlace, ObjectHeader};
use super::library::failed;
use super::types::{self, StoredType};
use super::unusual;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::dtype::MAX_ITEM_LEN;

/// A data set.
#[derive(Debug)]
pub struct StoredDataSet {
    /// The address of its header.
    pub address: u64,
    /// The length of each dimension.
    pub shape: Vec<u64>,
    /// The longest that the dimensions can be.
    pub max_shape: Option<Vec<u64>>,
    /// The type of elements.
    pub datatype: Datatype,
    /// The type as it is stored.
    pub encoded_type: Vec<u8>,
    /// An element that was not stored.
    pub fill: Option<Vec<u8>>,
    /// Whether parts of chunks that were not written may have any bytes.
    pub is_never_filled: bool,
    /// Where the values are, unless they are in other data sets.
    pub layout: Option<DataLayout>,
    /// Where the mappings to other data sets are.
    pub mappings: Option<HeapPlace>,
    /// The filters.
    pub pipeline: Option<FilterPipelineMessage>,
    /// The files with the values, if they are not in this one.
    pub external: Option<ExternalFilesMessage>,
}

impl StoredDataSet {
    /// Returns the data set with this header.
    pub fn of(
        file: &Hdf5File,
        address: u64,
        path: &str,
        header: ObjectHeader,
        attributes: &[Attribute],
    ) -> Result<Self> {
        let ObjectHeader { messages, datatype: encoded_type, mappings, .. } = header;
        let (mut space, mut datatype, mut layout, mut fill) = (None, None, None, None);
        let (mut pipeline, mut external) = (None, None);
        for message in messages {
            match message {
                HdfMessage::Dataspace(found) => space = Some(found),
                HdfMessage::Datatype(found) => datatype = Some(found.datatype),
                HdfMessage::DataLayout(found) => layout = Some(found.layout),
                HdfMessage::FillValue(found) => fill = Some(found),
                HdfMessage::FilterPipeline(found) => pipeline = Some(found),
                HdfMessage::ExternalFiles(found) => external = Some(found),
                _ => {}
            }
        }
        let missing = |what: &str| Error::corrupt(format!("HDF5: a data set without {what}"));
        let space = space.ok_or_else(|| missing("a shape"))?;
        let datatype = datatype.ok_or_else(|| missing("a type"))?;
        let encoded_type =
            if encoded_type.is_empty() { of_library(file, path)? } else { encoded_type };
        // 1 in the file, which the library calls so, and HDF5 `H5D_FILL_TIME_NEVER`.
        let is_never_filled =
            fill.as_ref().is_some_and(|fill| matches!(fill.fill_time, FillTime::Always));
        let value = fill.and_then(|FillValueMessage { value, .. }| value);
        let named = attributes.iter().find(|it| it.name == "_FillValue");
        let named = named.filter(|it| it.num_elements().is_ok_and(|count| count == 1));
        let fill = value.or_else(|| named.map(|it| it.raw_data.clone()));
        Ok(Self {
            address,
            shape: space.dims,
            max_shape: space.max_dims,
            datatype,
            encoded_type,
            fill,
            is_never_filled,
            layout,
            mappings,
            pipeline,
            external,
        })
    }

    /// Whether a dimension can have any length.
    pub fn is_unlimited(&self, dimension: usize) -> bool {
        let longest = self.max_shape.as_ref().and_then(|shape| shape.get(dimension));
        longest == Some(&u64::MAX) && matches!(self.layout, Some(DataLayout::Chunked { .. }))
    }

    /// Fails if elements between the end of the data set and that of its last chunks would be seen
    /// in this longer shape, and have any bytes.
    pub fn check_filled_up_to(&self, shape: &[u64]) -> Result<()> {
        let Some(DataLayout::Chunked { dims, .. }) = &self.layout else { return Ok(()) };
        let mut all = shape.iter().zip(&self.shape).zip(dims);
        let is_seen = all.any(|((new, own), chunk)| {
            new > own && !own.is_multiple_of(u64::from((*chunk).max(1)))
        });
        if is_seen && self.is_never_filled {
            return Err(Error::unsupported(
                "a variable of netCDF-4 without fill values that has fewer records than its \
                 dimension",
            ));
        }
        Ok(())
    }

    /// Returns the type of elements that others can show parts of.
    pub fn element_type(&self, file: &Hdf5File) -> Result<StoredType> {
        let stored = StoredType::of(&self.datatype, file.superblock().offset_size)?;
        if !stored.is_in_file() || stored.item_len > u64::from(MAX_ITEM_LEN) {
            let name = types::name_of(&self.datatype);
            return Err(Error::unsupported(format!(
                "HDF5 values in other data sets or files, of {name}"
            )));
        }
        unusual::check(&self.encoded_type, stored.has_gaps())?;
        Ok(stored)
    }
}

/// Returns the bytes of a type that is in the table of shared messages. The library has them.
fn of_library(file: &Hdf5File, path: &str) -> Result<Vec<u8>> {
    file.dataset(path).and_then(|found| found.raw_datatype()).map_err(failed)
}
