//! Paths of nodes that the attributes of a group name, for stores that cannot list.
//!
//! Many conventions name the nodes below a group: OME-Zarr those of images, plates and wells,
//! `AnnData` and `SpatialData` those of tables, `NCZarr` those of netCDF. A path that is named may
//! have no node, so a caller reads the node.

use serde_json::Value;

use zarrfs_codec::json::Object;

/// The most paths of a group.
const MOST: usize = 10_000;

/// The members of the elements of `AnnData` and of tables of other programs, by `encoding-type`.
const ENCODINGS: [(&str, &[&str]); 12] = [
    ("anndata", &["X", "layers", "obs", "obsm", "obsp", "raw", "uns", "var", "varm", "varp"]),
    ("raw", &["X", "var", "varm"]),
    ("csr_matrix", &["data", "indices", "indptr"]),
    ("csc_matrix", &["data", "indices", "indptr"]),
    ("categorical", &["categories", "codes"]),
    ("nullable-integer", &["mask", "values"]),
    ("nullable-boolean", &["mask", "values"]),
    ("nullable-string-array", &["mask", "values"]),
    ("mudata", &["mod", "obs", "obsm", "obsp", "uns", "var", "varm", "varp"]),
    ("awkward-array", &["node0", "node0-offsets", "node1"]),
    ("dataframe", &[]),
    ("dict", &[]),
];

/// The nodes below a group that its attributes name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// The paths of nodes from the group.
    pub paths: Vec<String>,
    /// Whether there may also be nodes 0, 1, 2 and so on, one for each image of a file.
    pub has_series: bool,
}

/// Returns what the attributes of a group say.
pub fn hints(attributes: &Object) -> Hints {
    let mut hints = Hints::default();
    hints.of_images(attributes);
    if let Some(Value::Object(ome)) = attributes.get("ome") {
        hints.of_images(ome);
    }
    hints.of_tables(attributes);
    hints.of_netcdf(attributes);
    hints.paths.truncate(MOST);
    hints
}

impl Hints {
    fn add(&mut self, path: Option<&Value>) {
        if let Some(Value::String(path)) = path {
            self.paths.push(path.trim_matches('/').to_owned());
        }
    }

    fn add_all(&mut self, list: Option<&Value>, member: Option<&str>) {
        for entry in list.and_then(Value::as_array).into_iter().flatten().take(MOST) {
            self.add(member.map_or(Some(entry), |member| entry.get(member)));
        }
    }

    fn add_names(&mut self, names: &[&str]) {
        self.paths.extend(names.iter().map(|name| (*name).to_owned()));
    }

    /// OME-Zarr, from 0.1 to 0.5.
    fn of_images(&mut self, attributes: &Object) {
        if let Some(multiscales) = attributes.get("multiscales") {
            for image in multiscales.as_array().into_iter().flatten().take(MOST) {
                self.add_all(image.get("datasets"), Some("path"));
            }
            // GeoZarr.
            self.add_all(multiscales.get("layout"), Some("asset"));
            self.add_names(&["labels"]);
        }
        self.add_all(attributes.get("labels"), None);
        let wells = attributes.get("plate").and_then(|plate| plate.get("wells"));
        self.add_all(wells, Some("path"));
        self.add_all(attributes.get("well").and_then(|well| well.get("images")), Some("path"));
        self.add_all(attributes.get("series"), None);
        if attributes.contains_key("bioformats2raw.layout") {
            self.add_names(&["OME"]);
            self.has_series = true;
        }
    }

    fn of_tables(&mut self, attributes: &Object) {
        if let Some(kind) = attributes.get("encoding-type").and_then(Value::as_str)
            && let Some((_, names)) = ENCODINGS.iter().find(|(known, _)| *known == kind)
        {
            self.add_names(names);
            self.add(attributes.get("_index"));
            self.add_all(attributes.get("column-order"), None);
        }
        if attributes.contains_key("spatialdata_attrs") {
            self.add_names(&["images", "labels", "points", "shapes", "tables"]);
        }
    }

    fn of_netcdf(&mut self, attributes: &Object) {
        for name in ["_NCZARR_GROUP", "_nczarr_group"] {
            let Some(group) = attributes.get(name) else { continue };
            for member in ["vars", "arrays", "groups"] {
                self.add_all(group.get(member), None);
            }
        }
        // xarray names the coordinates that belong to no variable.
        let coordinates = attributes.get("coordinates").and_then(Value::as_str);
        self.paths
            .extend(coordinates.into_iter().flat_map(str::split_whitespace).map(str::to_owned));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(attributes: &Value) -> Hints {
        hints(attributes.as_object().expect("an object"))
    }

    #[test]
    fn images_plates_and_wells_name_their_nodes() {
        let image = json!({"multiscales": [{"datasets": [{"path": "0"}, {"path": "1"}]}]});
        for attributes in [image.clone(), json!({"ome": image})] {
            assert_eq!(of(&attributes).paths, ["0", "1", "labels"]);
        }
        let plate = json!({"plate": {"wells": [{"path": "A/1"}, {"path": "B/2"}, {"x": 1}]}});
        assert_eq!(of(&plate).paths, ["A/1", "B/2"]);
        assert_eq!(of(&json!({"well": {"images": [{"path": "0"}]}})).paths, ["0"]);
        assert_eq!(of(&json!({"labels": ["cells"]})).paths, ["cells"]);
        let several = of(&json!({"ome": {"bioformats2raw.layout": 3}}));
        assert!(several.has_series && several.paths == ["OME"]);
    }

    #[test]
    fn tables_and_groups_of_netcdf_name_their_nodes() {
        let table = json!({"encoding-type": "dataframe", "_index": "i", "column-order": ["a"]});
        assert_eq!(of(&table).paths, ["i", "a"]);
        let group = json!({"_NCZARR_GROUP": {"vars": ["t2m"], "groups": ["g"]}});
        assert_eq!(of(&group).paths, ["t2m", "g"]);
        assert_eq!(of(&json!({"coordinates": "lat  lon"})).paths, ["lat", "lon"]);
    }

    #[test]
    fn other_attributes_name_nothing() {
        for attributes in [
            json!({}),
            json!({"multiscales": 1, "plate": [], "labels": {}, "series": "x", "ome": []}),
            json!({"encoding-type": "unknown", "_index": "i", "_NCZARR_GROUP": 3}),
        ] {
            let found = of(&attributes);
            assert!(found.paths.iter().all(|path| path == "labels") && !found.has_series);
        }
    }
}
