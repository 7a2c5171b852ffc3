"""Writes models/zarrfs/*/Cargo.toml: zarrfs and its members as they are, but with the crate std/ in the place of the
standard library. It needs Python 3.11."""

import json
import pathlib
import tomllib

models = pathlib.Path(__file__).resolve().parent
root = models.parent
program = tomllib.loads((root / "Cargo.toml").read_text())
workspace = program["workspace"]
members = {path.parent.name: tomllib.loads(path.read_text()) for path in sorted(root.glob("crates/*/Cargo.toml"))}


def value(of):
    """The text of a value in TOML: tables on one line."""
    if isinstance(of, dict):
        return "{ " + ", ".join(f"{name} = {value(inner)}" for name, inner in of.items()) + " }"
    if isinstance(of, list):
        return "[" + ", ".join(value(inner) for inner in of) + "]"
    return json.dumps(of)


def dependency(name, said):
    """A dependency without what it inherits. A member is the one below models/."""
    said = dict(said) if isinstance(said, dict) else {"version": said}
    if said.pop("workspace", False):
        inherited = workspace["dependencies"][name]
        said = (inherited if isinstance(inherited, dict) else {"version": inherited}) | said
    if "path" in said:
        member = pathlib.Path(said["path"]).name
        said = said | {"package": f"zarrfs-scheduled-{member}", "path": f"../{member}"}
        del said["version"]
    return f"{name} = {value(said)}"


def write(folder, package, crate, source, manifest):
    lines = [
        "# models/manifest.py writes this file.",
        f'[package]\nname = "{package}"\nversion = {value(workspace["package"]["version"])}\nedition = "2024"\npublish = false\n',
        f'[lib]\nname = "{crate}"\npath = "{source}"\ntest = false\ndoctest = false\n',
        '[dependencies]\nstd = { package = "scheduled-std", path = "../../std" }',
        *(dependency(name, said) for name, said in manifest["dependencies"].items()),
        "\n[features]",
        *(f"{name} = {value(needs)}" for name, needs in manifest.get("features", {}).items()),
    ]
    made = models / "zarrfs" / folder / "Cargo.toml"
    made.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + "\n"
    if not made.exists() or made.read_text() != text:
        made.write_text(text)


for name, manifest in members.items():
    write(name, f"zarrfs-scheduled-{name}", f"zarrfs_{name}", f"../../../crates/{name}/src/lib.rs", manifest)
write("program", "zarrfs-scheduled", "zarrfs", "../../../src/lib.rs", program)
