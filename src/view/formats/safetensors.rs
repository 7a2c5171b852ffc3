//! `safetensors` (<https://github.com/huggingface/safetensors>): all arrays below a group. The file
//! has the length of a JSON header in eight bytes, the header, and the elements of one array after
//! another.

use serde_json::{Value, json};

use crate::dtype::{DType, Narrow};
use crate::error::{Error, Result};
use crate::json::Object;
use crate::metadata::NodeKind;
use crate::view::elements::ElementRange;
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::{LeftOutOfView, listed};
use crate::view::parts::{Part, View};
use crate::view::source::{Children, ViewSource};
use crate::width::ToU64;

/// The most arrays in a file.
const MAX_ARRAYS: usize = 1 << 16;

/// The member of the header with the attributes, beside the names of arrays.
const METADATA: &str = "__metadata__";

/// The offset of the elements is a multiple of this.
const ALIGNMENT: usize = 8;

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let (mut arrays, mut left_out) = (Vec::new(), LeftOutOfView::default());
    find(source, source, &mut arrays, &mut left_out)?;
    // The longest element types come first, so that each array is aligned.
    arrays.sort_by(|one, other| {
        let key = |array: &Tensor| (std::cmp::Reverse(array.item_len), array.name.clone());
        key(one).cmp(&key(other))
    });
    let mut header = Object::new();
    let texts = source.attributes().iter().map(|(name, value)| {
        if !value.is_string() {
            let what = format!("attribute {name} (as a string of JSON)");
            left_out.add_property(source.path(), source.path(), what);
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (name.clone(), Value::String(text))
    });
    let texts: Object = texts.collect();
    if !texts.is_empty() {
        header.insert(METADATA.to_owned(), Value::Object(texts));
    }
    let mut end = 0_u64;
    for Tensor { name, dtype, shape, elements, .. } in &arrays {
        if name == METADATA {
            return Err(Error::unsupported(format!("no array can be called {name}")));
        }
        let start = end;
        end = end.checked_add(elements.len()).ok_or_else(|| Error::unsupported("too long"))?;
        let tensor = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
        header.insert(name.clone(), tensor);
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(ALIGNMENT), b' ');
    let mut bytes = text.len().to_u64().to_le_bytes().to_vec();
    bytes.append(&mut text);
    let elements = arrays.into_iter().map(|array| Part::from(array.elements));
    Ok(View::new([Part::from(bytes)].into_iter().chain(elements))?.with_left_out(left_out))
}

struct Tensor {
    name: String,
    dtype: &'static str,
    item_len: usize,
    shape: Vec<u64>,
    elements: ElementRange,
}

/// Adds all arrays below a group to `found`. Fails if one is unsupported, since a file without it
/// would not be the whole group.
fn find(
    root: &ViewSource<'_>,
    group: &ViewSource<'_>,
    found: &mut Vec<Tensor>,
    lacks: &mut LeftOutOfView,
) -> Result<()> {
    let Children { nodes, left_out } = group.children()?;
    if let Some((name, error)) = left_out.first() {
        return Err(Error::unsupported(format!("{name}: {}", error.detail())));
    }
    for child in nodes {
        let names = child.attributes().keys().map(String::as_str);
        let mut add = |what: &str| lacks.add_property(root.path(), child.path(), what);
        if !child.attributes().is_empty() {
            add(&format!("attributes ({})", listed(names)));
        }
        if child.kind() == NodeKind::Group {
            find(root, &child, found, lacks)?;
            continue;
        }
        let model = child.array()?.model();
        let names = listed(model.dimension_names.iter().flatten().map(String::as_str));
        if !names.is_empty() {
            add(&format!("dimensions ({names})"));
        }
        let reason = |detail: &str| Error::unsupported(format!("{}: {detail}", child.path()));
        let dtype = dtype(&model.dtype).ok_or_else(|| {
            reason(&format!("safetensors has no type for {}", model.dtype.name()))
        })?;
        let elements = child.elements(Layout::Linear, NumberForm::default());
        found.push(Tensor {
            name: child.path().relative_to(root.path()).unwrap_or_default().to_owned(),
            dtype,
            item_len: model.dtype.item_len(),
            shape: model.shape.clone(),
            elements: elements.map_err(|error| reason(error.detail()))?,
        });
        if found.len() > MAX_ARRAYS {
            return Err(Error::unsupported(format!("it has more than {MAX_ARRAYS} arrays")));
        }
    }
    Ok(())
}

fn dtype(dtype: &DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "BOOL",
        DType::Int(1) => "I8",
        DType::Int(2) => "I16",
        DType::Int(4) => "I32",
        DType::Int(8) => "I64",
        DType::Uint(1) => "U8",
        DType::Uint(2) => "U16",
        DType::Uint(4) => "U32",
        DType::Uint(8) => "U64",
        DType::Float(2) => "F16",
        DType::Float(4) => "F32",
        DType::Float(8) => "F64",
        DType::Complex(8) => "C64",
        DType::Narrow(Narrow { name: "bfloat16", .. }) => "BF16",
        DType::Narrow(Narrow { name: "float8_e4m3fn", .. }) => "F8_E4M3",
        DType::Narrow(Narrow { name: "float8_e5m2", .. }) => "F8_E5M2",
        DType::Narrow(Narrow { name: "float8_e8m0fnu", .. }) => "F8_E8M0",
        _ => return None,
    })
}
