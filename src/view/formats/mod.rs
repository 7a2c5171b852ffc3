//! The formats. Each builds the file for a node, or explains why there is none.

mod csv;
mod envi;
mod fits;
mod hdf5;
mod header;
mod metaimage;
mod mrc;
mod nc;
mod nifti;
mod nifti_zarr;
mod npy;
mod nrrd;
#[cfg(feature = "parquet")]
mod parquet;
mod plink;
mod raw;
mod safetensors;
mod text;
mod tiff;
mod vti;

use std::hash::{Hash, Hasher};

use super::image::levels;
use super::left_out::{LeftOutOfView, listed};
use super::parts::View;
use super::source::ViewSource;
use crate::dtype::DType;
use crate::error::Result;
use crate::metadata::NodeKind;

/// The nodes that a format can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// Arrays.
    Arrays,
    /// Arrays, and groups that are images, as their largest level.
    Images,
    /// Groups, with all nodes below them.
    Groups,
    /// Both.
    All,
}

/// How much a format says about a node, beside the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    /// Attributes and names. Its file lists those that it has in another form or not at all.
    All,
    /// The names of dimensions, in a file of numbers.
    NamesOfNumbers,
    /// Nothing.
    Nothing,
    /// Nothing, in a file of numbers.
    Numbers,
}

/// A format. Its extension identifies it.
#[derive(Debug)]
pub struct Format {
    /// The extension of the file name, without the dot.
    pub extension: &'static str,
    /// The name of the format for users.
    pub what: &'static str,
    /// The nodes that it can show.
    pub nodes: Nodes,
    /// What it says about a node, beside the elements.
    says: Says,
    /// Builds the file for a node, or fails with
    /// [`Kind::Unsupported`](crate::error::Kind::Unsupported) and the reason.
    build: fn(&ViewSource<'_>) -> Result<View>,
}

/// All formats, in the order of listings.
pub const FORMATS: &[Format] = &[
    Format {
        extension: "npy",
        what: "NumPy array (np.load, mmap_mode)",
        nodes: Nodes::Arrays,
        says: Says::Nothing,
        build: npy::build,
    },
    Format {
        extension: "raw",
        what: "the elements alone, little endian, C order (no header)",
        nodes: Nodes::Arrays,
        says: Says::Nothing,
        build: raw::build,
    },
    Format {
        extension: "nc",
        what: "netCDF classic (CDF-2, or CDF-5 if that cannot hold it)",
        nodes: Nodes::All,
        says: Says::All,
        build: nc::build,
    },
    Format {
        extension: "nc4",
        what: "netCDF-4",
        nodes: Nodes::All,
        says: Says::All,
        build: hdf5::build_nc4,
    },
    Format {
        extension: "h5",
        what: "HDF5, for library version 1.10 and later",
        nodes: Nodes::All,
        says: Says::All,
        build: hdf5::build_h5,
    },
    Format {
        extension: "hdr",
        what: "ENVI header of X.raw (GDAL, spectral)",
        nodes: Nodes::Arrays,
        says: Says::Numbers,
        build: envi::build,
    },
    Format {
        extension: "nrrd",
        what: "NRRD (Teem, ITK, Slicer)",
        nodes: Nodes::Images,
        says: Says::NamesOfNumbers,
        build: nrrd::attached,
    },
    Format {
        extension: "nhdr",
        what: "NRRD header of X.raw",
        nodes: Nodes::Arrays,
        says: Says::NamesOfNumbers,
        build: nrrd::detached,
    },
    Format {
        extension: "mha",
        what: "MetaImage (ITK, ParaView)",
        nodes: Nodes::Images,
        says: Says::Numbers,
        build: metaimage::attached,
    },
    Format {
        extension: "mhd",
        what: "MetaImage header of X.raw",
        nodes: Nodes::Arrays,
        says: Says::Numbers,
        build: metaimage::detached,
    },
    Format {
        extension: "tif",
        what: "TIFF; an ImageJ hyperstack if ImageJ has the data type",
        nodes: Nodes::Images,
        says: Says::Numbers,
        build: tiff::tif,
    },
    Format {
        extension: "ome.tif",
        what: "OME-TIFF whose tiles are the chunks, with the pyramid of an OME-Zarr image",
        nodes: Nodes::All,
        says: Says::Numbers,
        build: tiff::ome_tif,
    },
    Format {
        extension: "nii",
        what: "NIfTI-1, or NIfTI-2 if an axis is long (nibabel, FSL, ITK)",
        nodes: Nodes::Images,
        says: Says::Numbers,
        build: nifti::build,
    },
    Format {
        extension: "mrc",
        what: "MRC2014 (electron microscopy)",
        nodes: Nodes::Images,
        says: Says::Numbers,
        build: mrc::build,
    },
    Format {
        extension: "fits",
        what: "FITS image (astronomy)",
        nodes: Nodes::Arrays,
        says: Says::NamesOfNumbers,
        build: fits::build,
    },
    Format {
        extension: "vti",
        what: "VTK image data (ParaView)",
        nodes: Nodes::Arrays,
        says: Says::Numbers,
        build: vti::build,
    },
    Format {
        extension: "safetensors",
        what: "all arrays below a group (machine learning)",
        nodes: Nodes::Groups,
        says: Says::All,
        build: safetensors::build,
    },
    Format {
        extension: "txt",
        what: "the values of a short one-dimensional array, one per line",
        nodes: Nodes::Arrays,
        says: Says::Numbers,
        build: text::build,
    },
    Format {
        extension: "csv",
        what: "comma-separated values: a data frame of AnnData, columns or structures",
        nodes: Nodes::All,
        says: Says::Nothing,
        build: csv::build,
    },
    #[cfg(feature = "parquet")]
    Format {
        extension: "parquet",
        what: "Apache Parquet: the table of csv, with types",
        nodes: Nodes::All,
        says: Says::Nothing,
        build: parquet::build,
    },
    Format {
        extension: "bed",
        what: "PLINK 1 genotypes of a VCF Zarr group, beside its bim and fam",
        nodes: Nodes::Groups,
        says: Says::All,
        build: plink::bed,
    },
    Format {
        extension: "bim",
        what: "PLINK 1 variants of a VCF Zarr group",
        nodes: Nodes::Groups,
        says: Says::All,
        build: plink::bim,
    },
    Format {
        extension: "fam",
        what: "PLINK 1 samples of a VCF Zarr group",
        nodes: Nodes::Groups,
        says: Says::All,
        build: plink::fam,
    },
];

/// Whether an attribute is a part of the description of an image by OME-Zarr.
fn is_of_image(name: &str) -> bool {
    matches!(name, "ome" | "multiscales" | "omero")
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.extension == other.extension
    }
}

impl Eq for Format {}

impl Hash for Format {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.extension.hash(state);
    }
}

/// Other extensions by which programs know a format. Files of these names are never listed.
const ALIASES: &[(&str, &str)] = &[
    ("bin", "raw"),
    ("dat", "raw"),
    ("fit", "fits"),
    ("h5ad", "h5"),
    ("hdf5", "h5"),
    ("he5", "h5"),
    ("netcdf", "nc"),
    ("nwb", "h5"),
    ("ome.tiff", "ome.tif"),
    ("tiff", "tif"),
];

impl Format {
    /// Returns the format with this extension.
    pub fn of_extension(extension: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.extension == extension)
    }

    /// Returns all extensions with their formats, those of the formats themselves first.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static Self)> {
        let own = FORMATS.iter().map(|format| (format.extension, format));
        own.chain(ALIASES.iter().filter_map(|(alias, extension)| {
            Self::of_extension(extension).map(|format| (*alias, format))
        }))
    }

    /// Returns all ways to split a file name into the name of a node and a format, the longest
    /// extension first.
    pub fn split(name: &str) -> Vec<(&str, &'static Self)> {
        let stem = |(extension, format): (&str, &'static Self)| {
            let stem = name.strip_suffix(extension)?.strip_suffix('.')?;
            (!stem.is_empty()).then_some((stem, format))
        };
        let mut found: Vec<_> = Self::names().filter_map(stem).collect();
        found.sort_by_key(|(stem, _)| stem.len());
        found
    }

    /// Whether the format can show nodes of this kind.
    pub fn is_for(&self, kind: NodeKind) -> bool {
        match self.nodes {
            Nodes::Arrays => kind == NodeKind::Array,
            Nodes::Groups => kind == NodeKind::Group,
            Nodes::All | Nodes::Images => true,
        }
    }

    /// Whether its files have the names of arrays.
    pub fn holds_names(&self) -> bool {
        matches!(self.nodes, Nodes::All | Nodes::Groups) && !self.holds_images()
    }

    /// Whether the file of an OME-Zarr image has all of its levels.
    pub fn holds_images(&self) -> bool {
        self.extension == "ome.tif"
    }

    /// Returns the file for a node.
    pub fn view(&self, source: &ViewSource<'_>) -> Result<View> {
        let is_image = self.nodes == Nodes::Images && source.kind() == NodeKind::Group;
        let levels = if is_image { levels(source)? } else { Vec::new() };
        let source = levels.first().unwrap_or(source);
        let mut view = (self.build)(source)?;
        self.list_unsaid(source, view.left_out_mut());
        Ok(view)
    }

    /// Lists the properties of a node that no file of the format has.
    fn list_unsaid(&self, source: &ViewSource<'_>, left_out: &mut LeftOutOfView) {
        if self.says == Says::All {
            return;
        }
        let mut add = |what: &str| left_out.add_property(source.path(), source.path(), what);
        let is_shown = |name: &&str| !self.holds_images() || !is_of_image(name);
        let names = source.attributes().keys().map(String::as_str);
        let attributes = listed(names.filter(is_shown));
        if !attributes.is_empty() {
            add(&format!("attributes ({attributes})"));
        }
        let Ok(array) = source.array() else { return };
        let names = array.model().dimension_names.iter().flatten();
        let names = listed(names.map(String::as_str));
        if !names.is_empty() && self.says != Says::NamesOfNumbers {
            add(&format!("dimensions ({names})"));
        }
        if array.model().dtype == DType::Bool && self.says != Says::Nothing {
            add("type bool (as bytes of 0 and 1)");
        }
    }
}
