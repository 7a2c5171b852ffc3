#!/usr/bin/env python3
"""Draws docs/terminal.svg: a terminal in which the commands below have run, with what they printed.

    ZARRFS_BIN=... scripts/picture.py            writes docs/terminal.svg
    ZARRFS_BIN=... scripts/picture.py --check    fails if the commands print something else now

It needs ncdump and CDO, and NumPy for the Python that runs it. tests/peers/test_docs_commands.py checks the picture.
"""

import html
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "docs/terminal.svg"
BIN = os.environ.get("ZARRFS_BIN", "zarrfs")

# Comments, and commands with the number of lines to show of what they print.
SESSION = [
    ("# climate.zarr has compressed chunks in shards: two files for t2m", 0),
    ("$ zarrfs tree climate.zarr", 9),
    ("$ zarrfs mount climate.zarr mnt", 0),
    ("", 0),
    ("# Programs that do not know Zarr open it as a file of their format", 0),
    ("$ ncdump -h mnt/__root__.nc | grep t2m", 9),
    ("$ cdo -s outputkey,date,value -fldmean -seltimestep,2/4 mnt/t2m.nc", 9),
    ("$ python -c 'import numpy; print(numpy.load(\"mnt/t2m.npy\")[3].mean())'", 9),
    ("", 0),
    ("# They can change it, too: one value of a flat file, from a shell", 0),
    ("$ printf '\\0\\0\\200\\77' | dd of=mnt/t2m.raw conv=notrunc status=none    # 1.0", 0),
    ("$ zarrfs umount mnt", 0),
    ("$ zarrfs cat climate.zarr/t2m --as raw | od -A d -t f4 -N 16", 1),
]

CHARACTER, LINE, MARGIN, BAR = 8.4, 19, 20, 34
COLOURS = {"ground": "#1d2129", "bar": "#2a303b", "text": "#d8dee9", "command": "#a3d977", "comment": "#8fa1b8"}


def lines():
    """The lines of the terminal, each with its kind."""
    shown = []
    with tempfile.TemporaryDirectory() as home:
        tools = Path(home) / ".bin"
        tools.mkdir()
        (tools / "zarrfs").symlink_to(Path(BIN).resolve())
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", "TERM": "xterm", "HOME": home}

        def run(command):
            done = subprocess.run(
                ["bash", "-c", command], cwd=home, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
            )  # fmt: skip
            if done.returncode:
                sys.exit(f"scripts/picture.py: {command}: exit code {done.returncode}: {done.stdout}")
            return done.stdout

        run("zarrfs demo made && zarrfs umount made/mnt && mv made/climate.zarr made/mnt .")
        try:
            for text, count in SESSION:
                kind = "comment" if text.startswith("#") else "command"
                shown.append((kind, text))
                if text.startswith("$ "):
                    printed = run(text[2:]).expandtabs().splitlines()
                    shown += [("text", line.rstrip()) for line in printed[:count]]
        finally:
            if os.path.ismount(f"{home}/mnt"):
                run("zarrfs umount mnt")
    return shown


def svg(shown):
    width = round(max(len(text) for _, text in shown) * CHARACTER + 2 * MARGIN)
    height = len(shown) * LINE + BAR + 2 * MARGIN - 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>zarrfs in a terminal</title>",
        f'<rect width="{width}" height="{height}" rx="10" fill="{COLOURS["ground"]}"/>',
        f'<path d="M0 {BAR}V10a10 10 0 0 1 10-10H{width - 10}a10 10 0 0 1 10 10V{BAR}z" fill="{COLOURS["bar"]}"/>',
        *(f'<circle cx="{22 + 20 * n}" cy="{BAR / 2:g}" r="6" fill="#586274"/>' for n in range(3)),
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="14" '
        'xml:space="preserve">',
    ]
    for number, (kind, text) in enumerate(shown):
        if not text:
            continue
        y = BAR + MARGIN + 10 + number * LINE
        # The length keeps columns where they are, whatever font there is.
        length = f'textLength="{len(text) * CHARACTER:.1f}" lengthAdjust="spacingAndGlyphs"'
        escaped = html.escape(text, quote=False).replace(" ", "\u00a0")
        parts.append(f'<text x="{MARGIN}" y="{y}" fill="{COLOURS[kind]}" {length}>{escaped}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main():
    made = svg(lines())
    if sys.argv[1:] == ["--check"]:
        if PICTURE.read_text() != made:
            sys.exit("docs/terminal.svg shows something else than the commands print: run scripts/picture.py")
    else:
        PICTURE.write_text(made)


if __name__ == "__main__":
    main()
