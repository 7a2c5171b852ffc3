//! The `dds`: a declaration of each selected variable.
//!
//! ```text
//! Dataset {
//!     Float64 time[time = 4];
//!     Grid {
//!       ARRAY:
//!         Float32 t2m[time = 4];
//!       MAPS:
//!         Float64 time[time = 4];
//!     } t2m;
//! } climate;
//! ```

use super::dataset::DataSet;
use super::names::encoded;
use super::select::{Selected, SelectedVariable};

/// Returns the declarations.
pub(super) fn text(dataset: &DataSet<'_>, selected: &[Selected]) -> String {
    let of = |one: &Selected| declaration(dataset, one);
    let declarations: Vec<String> = selected.iter().map(of).collect();
    format!("Dataset {{\n{}}} {};\n", declarations.concat(), encoded(&dataset.name))
}

fn declaration(dataset: &DataSet<'_>, selected: &Selected) -> String {
    let name = |number: &usize| {
        dataset.variables.get(*number).map_or("", |variable| variable.identifier.as_str())
    };
    let members = |bases: &[SelectedVariable]| -> String {
        bases.iter().map(|base| of_base(dataset, base, "        ")).collect()
    };
    match selected {
        Selected::Base(base) => of_base(dataset, base, "    "),
        Selected::Grid(number, bases) => {
            let (array, maps) = bases.split_at(bases.len().min(1));
            let (array, maps) = (members(array), members(maps));
            let name = name(number);
            format!("    Grid {{\n      ARRAY:\n{array}      MAPS:\n{maps}    }} {name};\n")
        }
        Selected::Structure(number, bases) => {
            format!("    Structure {{\n{}    }} {};\n", members(bases), name(number))
        }
    }
}

fn of_base(dataset: &DataSet<'_>, base: &SelectedVariable, indent: &str) -> String {
    let Some(variable) = dataset.variables.get(base.variable) else { return String::new() };
    let dimensions = variable.dimensions.iter().zip(&base.axes);
    let dimensions: Vec<String> = dimensions
        .map(|(number, axis)| {
            let name = dataset.dimension_identifiers.get(*number).map_or("", String::as_str);
            format!("[{name} = {}]", axis.count)
        })
        .collect();
    let (kind, name) = (variable.wire.name(), &variable.identifier);
    format!("{indent}{kind} {name}{};\n", dimensions.concat())
}
