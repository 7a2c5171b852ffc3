"""Writes models/zarrfs/Cargo.toml: zarrfs as it is, but with the crate std/ in the place of the standard library."""

import pathlib
import re

models = pathlib.Path(__file__).resolve().parent
text = (models.parent / "Cargo.toml").read_text()
package = re.search(r'^version = .*$', text, re.M).group()
dependencies, features, lints = (re.search(rf"^\[{name}\]\n(.*?)(?=^\[)", text, re.M | re.S).group(1) for name in ("dependencies", "features", "lints.rust"))
parts = [
    "# models/manifest.py writes this file.",
    f'[package]\nname = "zarrfs-scheduled"\n{package}\nedition = "2024"\npublish = false\n',
    f'[lib]\nname = "zarrfs"\npath = "../../src/lib.rs"\ntest = false\ndoctest = false\n',
    f'[dependencies]\nstd = {{ package = "scheduled-std", path = "../std" }}\n{dependencies}',
    f"[features]\n{features}",
]
made = models / "zarrfs" / "Cargo.toml"
made.parent.mkdir(exist_ok=True)
if not made.exists() or made.read_text() != "\n".join(parts):
    made.write_text("\n".join(parts))
