"""Faults that scripts/models.sh puts into a copy of zarrfs, to show that the models find them.

`faults.py copy DIRECTORY` copies zarrfs and the models to a directory, with all faults in it. ZARRFS_FAULT, the name of one,
switches it on. `faults.py try PROGRAM [FAULT..]` runs the models of that copy: without a fault nothing may be found, and each
fault must be found by every model that it names.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Fault:
    """What is replaced in a file; ON stands for whether the fault is switched on."""

    name: str
    says: str
    models: tuple[str, ...]
    file: str
    old: str
    new: str


FAULTS = [
    Fault(
        "stored-is-forgotten",
        "A chunk that was written again while it was stored is no longer pending.",
        ("shard-writers", "truncate-unlink"),
        "crates/hierarchy/src/cache/pending/storing.rs",
        "self.remove(key, coords, |pending| pending.stat.version.is_same(version))",
        "self.remove(key, coords, |pending| ON || pending.stat.version.is_same(version))",
    ),
    Fault(
        "loaded-again",
        "A program that writes to a chunk reads the stored one, although another has written to it.",
        ("chunk-writers",),
        "src/vfs/contents/files.rs",
        "        if matches!(file.content, BytesAt::Stored) {\n            let target = target.ok_or_else(Error::not_found)?;\n",
        "        let is_here = matches!(file.content, BytesAt::Unstored(_));\n"
        "        if matches!(file.content, BytesAt::Stored) || (ON && is_here) {\n"
        "            let target = target.ok_or_else(Error::not_found)?;\n",
    ),
    Fault(
        "late-slot",
        "A chunk that was read before a write is cached after it.",
        ("views", "prefetch"),
        "crates/hierarchy/src/cache/reading.rs",
        "            *chunk = Some(read.clone());\n            drop(chunk);\n",
        "            if ON {\n                drop(chunk);\n                let late = self.slots.slot(array, coords);\n"
        "                *late.chunk.lock() = Some(read.clone());\n            } else {\n"
        "                *chunk = Some(read.clone());\n                drop(chunk);\n            }\n",
    ),
    Fault(
        "edited-is-another",
        "Chunks that were written before an edit of the attributes count as those of another array.",
        ("edited-views",),
        "crates/hierarchy/src/cache/pending/mod.rs",
        "            !array.has_chunks_of(&shard.array) && !array.is_other_form_of(&shard.array)\n",
        "            (ON && !std::ptr::eq(array, &*shard.array))\n"
        "                || !array.has_chunks_of(&shard.array) && !array.is_other_form_of(&shard.array)\n",
    ),
    Fault(
        "replaced-is-not-given-back",
        "The memory of a pending chunk that is written again is not given back.",
        ("shard-writers", "truncate-unlink"),
        "crates/hierarchy/src/cache/pending/mod.rs",
        "        self.memory.shrink(old.as_ref().map_or(0, PendingChunk::cost));\n        self.recount(table);\n",
        "        if !ON {\n            self.memory.shrink(old.as_ref().map_or(0, PendingChunk::cost));\n        }\n"
        "        self.recount(table);\n",
    ),
    Fault(
        "limit-in-two-steps",
        "A limit is checked in one step, and the memory is drawn in another.",
        ("budget",),
        "crates/base/src/budget.rs",
        "    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()",
        "    if ON {\n        let fits = fits(sum.load(Ordering::Relaxed)).is_some();\n"
        "        if fits {\n            sum.fetch_add(more, Ordering::Relaxed);\n        }\n        return fits;\n    }\n"
        "    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()",
    ),
    Fault(
        "given-back-in-two-steps",
        "Threads that share a lease give memory back at the same time.",
        ("small-memory",),
        "crates/base/src/budget.rs",
        "        let rest = |len: u64| Some(len.saturating_sub(less));\n",
        "        if ON {\n            let len = self.len();\n            self.len.store(len.saturating_sub(less), Ordering::Relaxed);\n"
        "            return self.budget.take_back(self.purpose, len.min(less));\n        }\n"
        "        let rest = |len: u64| Some(len.saturating_sub(less));\n",
    ),
    Fault(
        "one-more-prefetches",
        "One thread more than allowed reads ahead.",
        ("pool",),
        "crates/base/src/pool.rs",
        "if queue.busy_prefetching < self.most_ahead",
        "if queue.busy_prefetching < self.most_ahead + usize::from(ON)",
    ),
    Fault(
        "moved-reads-as-nothing",
        "A view of an array that has moved reads on.",
        ("moved-views",),
        "src/vfs/core.rs",
        "        if !self.hierarchy.has_moved_since(&elements.path, moves) {\n",
        "        if ON {\n            return Ok(Arc::clone(&elements.array));\n        }\n"
        "        if !self.hierarchy.has_moved_since(&elements.path, moves) {\n",
    ),
    Fault(
        "removed-while-read",
        "The bytes of a file that is removed while it is read are those that are left in the store.",
        ("handles", "names"),
        "src/vfs/contents/files.rs",
        "        kept.map_or(read, Ok)\n",
        "        kept.filter(|_| !ON).map_or(read, Ok)\n",
    ),
    Fault(
        "names-are-missed",
        "A name that a change of the tree hides for a moment is not looked up again.",
        ("new-nodes",),
        "src/vfs/core.rs",
        "        epoch.is_some() && self.epoch() == epoch\n",
        "        ON || epoch.is_some() && self.epoch() == epoch\n",
    ),
    Fault(
        "never-forgotten",
        "An inode that a thread uses while the kernel forgets it is never dropped.",
        ("names",),
        "src/vfs/inodes/inode/mod.rs",
        "        for number in std::mem::take(&mut table.unclaimed) {\n            table.drop_unknown(number);\n",
        "        for number in std::mem::take(&mut table.unclaimed) {\n            if ON {\n                continue;\n            }\n"
        "            table.drop_unknown(number);\n",
    ),
    Fault(
        "locks-in-another-order",
        "Two files are locked in the order of a rename.",
        ("opposite-renames",),
        "src/vfs/changes/renames.rs",
        "    if one.number() < other.number() {\n",
        "    if ON || one.number() < other.number() {\n",
    ),
    Fault(
        "renamed-from-elsewhere",
        "A file is renamed although another thread has just renamed or replaced it.",
        ("renames",),
        "src/vfs/changes/renames.rs",
        "    if !inode.is_at(from) {\n        return Err(Error::not_found());\n",
        "    if ON {\n        return Ok(());\n    }\n    if !inode.is_at(from) {\n        return Err(Error::not_found());\n",
    ),
    Fault(
        "moved-beside-a-write",
        "A group moves while a file below it is written.",
        ("moves",),
        "src/vfs/changes/directories.rs",
        "        let files: Vec<_> = below.iter().map(|inode| inode.file().lock()).collect();\n",
        "        let files: Vec<_> = below.iter().filter(|_| !ON).map(|inode| inode.file().lock()).collect();\n",
    ),
    Fault(
        "linked-without-the-old-name",
        "Another name of a file takes the place of the one before.",
        ("links",),
        "src/vfs/inodes/inode/mod.rs",
        "        table.detach_at(place);\n        inode.places.write().push(place.clone());\n",
        "        table.detach_at(place);\n        if ON {\n            inode.places.write().clear();\n        }\n"
        "        inode.places.write().push(place.clone());\n",
    ),
]

SWITCH = '''
/// Whether a fault is switched on.
pub fn is_at_fault(name: &str) -> bool {
    std::env::var("ZARRFS_FAULT").is_ok_and(|fault| fault == name)
}
'''


def fail(sentence):
    sys.exit(f"models/faults.py: {sentence}")


def copy(to):
    """Copies only what has changed, so that only that is compiled again."""
    models = set(re.findall(r'Model { name: "([a-z-]+)"', (ROOT / "models/src/programs/mod.rs").read_text()))
    if without := models - {model for fault in FAULTS for model in fault.models}:
        fail(f"no fault names these models: {', '.join(sorted(without))}")
    needed = ["Cargo.toml", "benches", "crates", "models", "packaging", "src"]
    listed = subprocess.run(["git", "ls-files", "-z", *needed], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    texts = {name: (ROOT / name).read_bytes() for name in listed.split("\0") if name and (ROOT / name).exists()}
    texts["crates/base/src/lib.rs"] += SWITCH.encode()
    for fault in FAULTS:
        name = fault.file
        base = "crate" if name.startswith("crates/base/") else "zarrfs_base"
        new = re.sub(r"\bON\b", f'{base}::is_at_fault("{fault.name}")', fault.new)
        if (count := texts.get(name, b"").count(fault.old.encode())) != 1:
            fail(f"{name}: the place of {fault.name} is there {count} times: mend FAULTS")
        texts[name] = texts[name].replace(fault.old.encode(), new.encode())
    for name in texts:
        target = to / name
        if not target.exists() or target.read_bytes() != texts[name]:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(texts[name])
    for directory in ("crates", "src", "models/src"):
        for path in (to / directory).rglob("*.rs"):
            if str(path.relative_to(to)) not in texts:
                path.unlink()


def run(program, fault, models):
    environment = {**os.environ, "ZARRFS_FAULT": fault.name if fault else ""}
    return subprocess.run([program, *models], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def first_failure(output):
    lines = output.splitlines()
    places = [place for place, line in enumerate(lines) if line.endswith("FAILED")]
    if not places:
        return None
    scheduler, tried = lines[places[0]].split()[1:3]
    words = " ".join(line.strip() for line in lines[places[0] + 1 : places[0] + 4])
    return f"{scheduler}, after {tried}: {words[:160]}"


def try_faults(program, names):
    unknown = set(names) - {fault.name for fault in FAULTS}
    if unknown:
        fail(f"the faults are {', '.join(fault.name for fault in FAULTS)}")
    faults = [fault for fault in FAULTS if not names or fault.name in names]
    right = True
    for fault in [None, *faults]:
        for model in sorted({model for each in faults for model in each.models}) if fault is None else fault.models:
            done = run(program, fault, [model])
            found = first_failure(done.stdout)
            is_right = (found is None and done.returncode == 0) if fault is None else found is not None
            right &= is_right
            said = found or "nothing found"
            print(f"{'right' if is_right else 'WRONG'}  {fault.name if fault else 'no fault':<28} {model:<18} {said}", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["copy", directory]:
            copy(Path(directory))
        case ["try", program, *names]:
            sys.exit(try_faults(program, names))
        case _:
            sys.exit(__doc__)
