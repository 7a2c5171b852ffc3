"""A real browser without a window, and a web site of another origin whose pages read what `zarrfs serve` serves."""

import contextlib
import functools
import http.server
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

from mounts import PATIENCE, is_alive, wait_until

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
# Where the packages of package.json are installed.
PACKAGES = Path(os.environ.get("ZARRFS_PACKAGES", Path.home() / ".cache/zarrfs-tests/browser/node_modules"))
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1100,900""".split()

# The names by which a page imports the packages, and their modules. No program puts them into one file.
MODULES = {
    "zarrita": "zarrita/dist/src/index.js",
    "@zarrita/storage/fetch": "@zarrita/storage/dist/src/fetch.js",
    "numcodecs/blosc": "numcodecs/dist/blosc.js",
    "numcodecs/lz4": "numcodecs/dist/lz4.js",
    "numcodecs/zstd": "numcodecs/dist/zstd.js",
    "fflate": "fflate/esm/browser.js",
    "h5wasm": "h5wasm/dist/esm/hdf5_hl.js",
}
IMPORTS = json.dumps({"imports": {name: f"/packages/{path}" for name, path in MODULES.items()}})
PAGE = f"""<!doctype html><meta charset="utf-8"><title>another site</title><link rel="icon" href="data:,">
<script type="importmap">{IMPORTS}</script>
<script>
const base64 = bytes => btoa(Array.from(new Uint8Array(bytes), byte => String.fromCharCode(byte)).join(""))
</script>"""
# Reads an HDF5 file by ranges while the library asks for its bytes, which only a worker may wait for.
WORKER = """
importScripts("/packages/h5wasm/dist/iife/h5wasm.js")
onmessage = async ({data: {url, name, ranges}}) => {
    try {
        const {FS} = await h5wasm.ready
        FS.createLazyFile("/", "lazy.h5", url, true, false)
        const file = new h5wasm.File("/lazy.h5", "r")
        const array = file.get(name)
        postMessage({shape: array.shape, values: Array.from(array.slice(ranges))})
    } catch (error) {
        setTimeout(() => { throw error })
    }
}
"""


class Site:
    """A web server with a page and the packages."""

    def __init__(self):
        handler = functools.partial(Handler, directory=str(PACKAGES))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {".js": "text/javascript", ".wasm": "application/wasm"}

    def do_GET(self):
        own = {"/": ("text/html", PAGE), "/worker.js": ("text/javascript", WORKER)}
        if self.path in own:
            kind, text = own[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())
        elif self.path.startswith("/packages/"):
            self.path = self.path.removeprefix("/packages")
            super().do_GET()
        else:
            self.send_error(404)

    def log_message(self, *_):
        pass


class Browser:
    """Chromium, until `end`. `console` and `requests` return what came since the last call."""

    def __init__(self, *flags):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        self.directory = tempfile.mkdtemp(prefix="chromium.")
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in [*FLAGS, *flags, f"--user-data-dir={self.directory}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # All that they write is below the directory.
        self.service = Service(DRIVER, env={**os.environ, "TMPDIR": self.directory})
        try:
            self.driver = webdriver.Chrome(options=options, service=self.service)
            self.driver.set_page_load_timeout(PATIENCE)
            self.driver.set_script_timeout(PATIENCE)
        except BaseException:
            self.end()
            raise

    def open(self, url):
        self.driver.get(url)
        # The driver may come back while the empty page is still there.
        is_there = "return document.readyState === 'complete' && (location.href === 'about:blank') === (a === 'about:blank')"
        assert wait_until(lambda: self.run(is_there, url)), url

    def run(self, code, *words):
        """What the asynchronous code returns, in the page that is open. `words` are its arguments a, b, c."""
        names = ", ".join("abcdef"[: len(words)])
        script = f"""const done = arguments[arguments.length - 1]
            const run = async ({names}) => {{ {code} }}
            run(...Array.prototype.slice.call(arguments, 0, -1)).then(
                value => done({{value}}), error => done({{failed: error.stack || String(error)}}))"""
        said = self.driver.execute_async_script(script, *words)
        assert "failed" not in said, said["failed"]
        return said.get("value")

    def console(self):
        """The messages in the console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """The URLs of all requests that pages made."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def processes(self):
        """The processes of this browser and its driver that live."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self.directory in (entry / "cmdline").read_bytes().decode(errors="replace"):
                    found.append(int(entry.name))
        driver = getattr(self.service, "process", None)
        return [pid for pid in found + ([driver.pid] if driver else []) if is_alive(pid)]

    def end(self):
        """Ends the browser, also one that does not answer."""
        with contextlib.suppress(Exception):
            self.driver.quit()
        with contextlib.suppress(Exception):
            self.service.stop()
        if not wait_until(lambda: not self.processes(), 5):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        # A process that is ending may still write there.
        wait_until(lambda: subprocess.run(["rm", "-rf", self.directory]).returncode == 0, 5)
