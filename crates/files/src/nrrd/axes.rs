//! The axes of NRRD: their names, units and places.

use super::header::NrrdHeader;
use crate::image::{ImageAxis, unit};

/// Whether the fastest axis has the two parts of complex numbers.
pub fn is_complex(header: &NrrdHeader, fastest: Option<&u64>) -> bool {
    header.words(&["kinds"]).first() == Some(&"complex") && fastest == Some(&2)
}

/// Returns the axes, the fastest first.
pub fn of(header: &NrrdHeader, rank: usize) -> Vec<ImageAxis> {
    let kinds = header.words(&["kinds"]);
    let labels = header.quoted(&["labels"]);
    let units = header.quoted(&["units"]);
    let space_units = header.quoted(&["space units"]);
    let directions = header.vectors(&["space directions"]);
    let origin = header.vectors(&["space origin"]).into_iter().next().flatten().unwrap_or_default();
    let spacings = numbers(header, &["spacings"]);
    let mins = numbers(header, &["axis mins", "axismins"]);
    let centers = header.words(&["centers", "centerings"]);
    let mut free = ["x", "y", "z"].into_iter();
    let mut axes: Vec<ImageAxis> = Vec::new();
    for index in 0..rank {
        let kind = kinds.get(index).copied().unwrap_or("domain");
        let direction = directions.get(index).and_then(Option::as_ref);
        let (kind, name) = match kind {
            "time" => (Some("time"), "t"),
            "space" | "domain" | "???" | "none" if directions.is_empty() || direction.is_some() => {
                free.next().map_or((None, "d"), |name| (Some("space"), name))
            }
            "space" | "domain" | "???" | "none" => (None, "d"),
            _ => (Some("channel"), "c"),
        };
        let label = labels.get(index).filter(|label| !label.is_empty());
        let name = label.map_or(name, String::as_str);
        let is_taken = axes.iter().any(|axis| axis.name == name);
        let mut axis = ImageAxis { kind, ..ImageAxis::default() };
        axis.name = if is_taken { format!("{name}{index}") } else { name.to_owned() };
        if let Some(direction) = direction {
            let step = direction.iter().map(|part| part * part).sum::<f64>().sqrt();
            axis.step = Some(step);
            // The place of an axis that is turned is in the attributes alone.
            let along = direction.iter().position(|part| *part > 0.0);
            let is_aligned = direction.iter().filter(|part| **part != 0.0).count() == 1;
            if let Some(along) = along.filter(|_| is_aligned) {
                axis.start = origin.get(along).copied().unwrap_or_default();
            }
            let own = space_units.get(along.unwrap_or_default());
            axis.unit = own.filter(|own| !own.is_empty()).map(|own| unit(own));
        } else {
            axis.step = spacings.get(index).copied().filter(|step| step.is_finite());
            axis.start = mins.get(index).copied().filter(|min| min.is_finite()).unwrap_or_default();
            if centers.get(index) == Some(&"cell") && axis.start != 0.0 {
                axis.start += axis.step.unwrap_or_default() / 2.0;
            }
            axis.unit = units.get(index).filter(|own| !own.is_empty()).map(|own| unit(own));
        }
        axes.push(axis);
    }
    axes
}

/// Returns the numbers of a field, NaN for those that are missing.
fn numbers(header: &NrrdHeader, names: &[&str]) -> Vec<f64> {
    header.words(names).iter().map(|word| word.parse().unwrap_or(f64::NAN)).collect()
}
