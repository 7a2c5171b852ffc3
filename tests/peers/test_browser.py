"""`zarrfs serve` in Chromium: its pages, and pages of other origins that read arrays and files by URL."""

import base64
import contextlib
import json
import shutil
import urllib.parse

import numpy as np
import pytest
import zarr

from browsers import CHROMIUM, DRIVER, PACKAGES, Browser, Site
from serving import serving
from torture import LONG

VALUES = np.random.default_rng(5).normal(280, 10, (64, 96)).astype("f4")
# Names that mean something in a URL, in HTML or in a shell.
NAMES = ["a b", "it's", 'say "hi"', "<img src=x onerror=alert(1)>", "a#b", "what?", "50%", "50%25", "größe", "温度", "a&amp;b", "a:b", "[0];+"]


@pytest.fixture(scope="module")
def browser():
    assert CHROMIUM and DRIVER and PACKAGES.exists(), "scripts/test.sh installs Chromium and the packages"
    browser = Browser("--host-resolver-rules=MAP evil.example 127.0.0.1")
    try:
        yield browser
    finally:
        browser.end()
    assert not browser.processes()


@pytest.fixture(scope="module")
def site():
    site = Site()
    yield site
    site.end()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = tmp_path_factory.mktemp("browser") / "climate.zarr"
    group = zarr.create_group(store, attributes={"title": "a <b> & 'c'"})
    arrays = {
        "t2m": dict(shards=(32, 96)),
        "blosc": dict(compressors=[zarr.codecs.BloscCodec(cname="zstd")]),
        "big": dict(serializer=zarr.codecs.BytesCodec(endian="big")),
    }
    for name, options in arrays.items():
        group.create_array(name, data=VALUES, chunks=(16, 32), dimension_names=["y", "x"], **options)
    group.create_array("count", data=np.arange(100, dtype="i8") - 50, chunks=(30,))
    group.create_array("words", data=np.array(["one", "two"]), chunks=(2,))
    below = group.create_group("below")
    below.create_array("level", data=np.arange(6, dtype="u1").reshape(2, 3), chunks=(1, 3))
    return store


@pytest.fixture(scope="module")
def server(store):
    with serving(store) as server:
        yield server


@pytest.fixture(params=["127.0.0.1", "localhost"])
def page(request, browser, site):
    """A page of another origin."""
    browser.open(f"http://{request.param}:{site.port}/")
    browser.console(), browser.requests()
    return browser


def decoded(text, dtype, shape=-1):
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape)


READ = """
const reply = await fetch(a, {headers: b, method: c})
const seen = ["ETag", "Content-Range", "Content-Length", "Accept-Ranges", "Last-Modified", "Content-Type"]
const headers = Object.fromEntries(seen.map(name => [name, reply.headers.get(name)]))
return {status: reply.status, headers, body: base64(await reply.arrayBuffer()), type: reply.type}
"""


def test_a_page_of_another_origin_reads_chunks_and_ranges_and_sees_their_headers(page, server):
    assert page.run("return location.origin") not in server.url
    chunk = server.url + "t2m/c/2/1"
    said = page.run(READ, chunk, {}, "GET")
    assert (said["status"], said["type"]) == (200, "cors")
    assert np.array_equal(decoded(said["body"], "<f4", (16, 32)), VALUES[32:48, 32:64])
    headers = said["headers"]
    assert (headers["Content-Length"], headers["Accept-Ranges"]) == ("2048", "bytes")
    assert headers["ETag"].startswith('"') and headers["Last-Modified"].endswith("GMT")
    part = page.run(READ, chunk, {"Range": "bytes=128-255"}, "GET")
    assert (part["status"], part["headers"]["Content-Range"]) == (206, "bytes 128-255/2048")
    assert np.array_equal(decoded(part["body"], "<f4"), VALUES[33, 32:64])
    assert part["headers"]["ETag"] == headers["ETag"]
    # These need the permission that the browser asks for by OPTIONS.
    both = {"Range": "bytes=0-3", "If-Range": headers["ETag"]}
    assert page.run(READ, chunk, both, "GET")["status"] == 206
    assert page.run(READ, chunk, {"If-None-Match": headers["ETag"]}, "GET")["status"] == 304
    head = page.run(READ, chunk, {}, "HEAD")
    assert (head["status"], head["headers"]["Content-Length"], head["body"]) == (200, "2048", "")
    view = page.run(READ, server.url + "t2m.npy", {"Range": "bytes=-128"}, "GET")
    assert np.array_equal(decoded(view["body"], "<f4"), VALUES[-1, -32:])
    past = page.run(READ, chunk, {"Range": "bytes=2048-"}, "GET")
    assert past["status"] == 416


def test_a_page_of_another_origin_without_the_token_gets_nothing(page, server):
    root = f"http://127.0.0.1:{server.port}/"
    for path in ["", "t2m/c/0/0", "zarr.json", "x/zarr.json", "t2m.nc"]:
        said = page.run(READ, root + path, {}, "GET")
        assert said["status"] == 403, path
        assert said["headers"]["ETag"] is None
        assert base64.b64decode(said["body"]) == b"the URL needs the token that zarrfs serve has printed\n"


def test_a_name_that_another_site_lets_point_here_is_refused(browser, server):
    browser.open(f"http://evil.example:{server.port}{server.root}")
    text = browser.run("return document.body.innerText")
    assert 'the request is for the host "evil.example"' in text
    assert server.get("zarr.json", Host="evil.example")[0] == 421


ZARRITA = """
const zarr = await import("zarrita")
const {default: FetchStore} = await import("@zarrita/storage/fetch")
const root = zarr.root(new FetchStore(a))
const array = await zarr.open(root.resolve(b), {kind: "array"})
const {data, shape} = await zarr.get(array, c)
const group = await zarr.open(root, {kind: "group"})
return {dtype: array.dtype, shape, body: base64(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)),
        whole: array.shape, chunks: array.chunks, title: group.attrs.title}
"""


@pytest.mark.parametrize("form", ["zarr", "zarr2"])
def test_zarrita_opens_the_tree_by_url(form, page, store):
    """Whatever the store is, the tree shows plain chunks: no shards, no compression, little endian."""
    with serving(store, "--as", form) as server:
        for name in ["t2m", "blosc", "big"]:
            said = page.run(ZARRITA, server.url, name, None)
            assert (said["dtype"], said["whole"], said["chunks"]) == ("float32", [64, 96], [16, 32]), name
            assert said["title"] == "a <b> & 'c'"
            assert np.array_equal(decoded(said["body"], "<f4", VALUES.shape), VALUES), name
        said = page.run(ZARRITA, server.url, "count", None)
        assert np.array_equal(decoded(said["body"], "<i8"), np.arange(100) - 50)
        said = page.run(ZARRITA, server.url, "below/level", [1, None])
        assert np.array_equal(decoded(said["body"], "u1"), [3, 4, 5])
    assert not [line for line in page.console() if "404" not in line]


def test_h5wasm_opens_a_view_that_a_page_has_fetched(page, server):
    code = """
    const {default: h5wasm} = await import("h5wasm")
    const {FS} = await h5wasm.ready
    const reply = await fetch(a)
    FS.writeFile("fetched.h5", new Uint8Array(await reply.arrayBuffer()))
    const file = new h5wasm.File("fetched.h5", "r")
    const array = file.get(b)
    const part = array.slice([[10, 20], [5, 8]])
    const said = {shape: array.shape, body: base64(array.value.slice().buffer), part: Array.from(part), keys: file.keys()}
    file.close()
    return said
    """
    for name in ["__root__.h5", "__root__.nc4"]:
        said = page.run(code, server.url + name, "t2m")
        assert {"t2m", "blosc", "below"} <= set(said["keys"]), name
        assert np.array_equal(decoded(said["body"], "<f4", said["shape"]), VALUES), name
        assert np.array_equal(np.array(said["part"], "f4").reshape(10, 3), VALUES[10:20, 5:8]), name


def test_h5wasm_reads_a_view_of_a_gigabyte_by_ranges(page, tmp_path):
    code = """
    const worker = new Worker("/worker.js")
    const said = await new Promise((resolve, reject) => {
        worker.onmessage = ({data}) => resolve(data)
        worker.onerror = event => reject(new Error(event.message))
        worker.postMessage({url: a, name: b, ranges: c})
    })
    worker.terminate()
    return said
    """
    root = zarr.create_group(tmp_path / "huge.zarr")
    root.create_array("t2m", data=VALUES, chunks=(16, 32))
    huge = root.create_array("huge", shape=(1 << 30,), chunks=(1 << 20,), dtype="u1", fill_value=7)
    huge[900_000_000:900_000_100] = np.arange(100)
    with serving(tmp_path / "huge.zarr") as server:
        said = page.run(code, server.url + "__root__.h5", "t2m", [[0, 64], [0, 96]])
        assert said["shape"] == [64, 96]
        assert np.array_equal(np.array(said["values"], "f4").reshape(said["shape"]), VALUES)
        said = page.run(code, server.url + "__root__.h5", "huge", [[899_999_999, 900_000_101]])
        assert said["shape"] == [1 << 30]
        assert said["values"] == [7, *range(100), 7]


@contextlib.contextmanager
def only(browser, server):
    """The pages say nothing in the console, and ask for nothing from elsewhere."""
    browser.open("about:blank")
    browser.console(), browser.requests()
    yield
    assert browser.console() == []
    strange = [url for url in browser.requests() if not url.startswith((server.url, "data:"))]
    assert strange == []


def links(browser):
    return browser.run("return Array.from(document.links, link => [link.textContent, link.href])")


def click(browser, text):
    from selenium.webdriver.common.by import By

    browser.driver.find_element(By.LINK_TEXT, text).click()


def test_people_walk_through_the_pages_by_clicking(browser, server):
    with only(browser, server):
        walk(browser, server)
    # Chromium shows a metadata file.
    click(browser, "zarr.json")
    assert json.loads(browser.run("return document.body.innerText"))["node_type"] == "group"


def walk(browser, server):
    browser.open(server.url)
    text = browser.run("return document.body.innerText")
    assert "a <b> & 'c'" in text
    names = [name for name, _ in links(browser)]
    assert names[-6:] == ["big/", "blosc/", "count/", "t2m/", "words/", "zarr.json"], names
    click(browser, "t2m/")
    assert browser.driver.title == "t2m"
    text = browser.run("return document.body.innerText")
    assert "float32 64 × 96 (y, x), chunks 16 × 32" in text
    loaded = "const [image] = document.images; await image.decode(); return [image.naturalWidth, image.naturalHeight]"
    width, height = browser.run(loaded)
    assert width > 0 and height > 0
    click(browser, "c/")
    click(browser, "3/")
    assert "2 048 bytes" in browser.run("return document.body.innerText").replace("\u202f", " ")
    click(browser, "t2m")
    assert browser.driver.current_url == server.url + "t2m/"
    click(browser, "climate.zarr")
    assert browser.driver.current_url == server.url and browser.driver.title == "climate.zarr"
    click(browser, "words/")
    assert browser.run("return document.images.length") == 0
    click(browser, "../")
    assert browser.driver.current_url == server.url


def test_every_link_of_a_page_opens(browser, server):
    """A format that a node does not have is not offered, and the answer for its name has the reason."""
    with only(browser, server):
        for page in ["", "t2m/", "words/", "count/", "below/", "below/level/"]:
            browser.open(server.url + page)
            found = links(browser)
            assert any(href.endswith(".npy") for _, href in found) == (page not in ["", "below/"]), page
            for name, href in found:
                assert server.get(href.removeprefix(server.url))[0] == 200, f"{page}: {name} {href}"
        browser.open(server.url + "words/")
        assert not any(name == ".fits" for name, _ in links(browser))
    status, _, body = server.get("words.fits")
    assert status == 404 and body.startswith(b"words.fits: ") and len(body) > 20


@pytest.mark.parametrize("kind", ["arrays", "groups"])
def test_names_with_special_characters_work_and_are_only_names(kind, browser, store, tmp_path):
    root = tmp_path / "names.zarr"
    zarr.create_group(root, attributes={name: f"</td><script>alert({at})</script>" for at, name in enumerate(NAMES)})
    for name in NAMES:
        shutil.copytree(store / ("t2m" if kind == "arrays" else "below"), root / name)
    with serving(root) as server, only(browser, server):
        browser.open(server.url)
        shown = [name for name, _ in links(browser)]
        assert set(NAMES) <= {name.removesuffix("/") for name in shown}, shown
        assert browser.run("return document.scripts.length + document.images.length") == 0
        for name in NAMES:
            click(browser, name + "/")
            assert browser.driver.title == name
            assert browser.driver.current_url.startswith(server.url)
            assert urllib.parse.unquote(browser.driver.current_url.removeprefix(server.url)) == name + "/"
            for text, href in links(browser):
                assert server.get(href.removeprefix(server.url))[0] == 200, f"{name}: {text} {href}"
            if kind == "arrays":
                assert browser.run("await document.images[0].decode(); return document.images[0].naturalWidth") > 0
            click(browser, "names.zarr")
            assert browser.driver.current_url == server.url


def test_the_page_of_a_group_with_thousands_of_nodes_is_sorted_and_soon_there(browser, store, tmp_path):
    count = 10_000 if LONG else 2000
    root = tmp_path / "many.zarr"
    zarr.create_group(root)
    metadata = (store / "count/zarr.json").read_bytes()
    for number in range(count):
        (root / f"station{number}").mkdir()
        (root / f"station{number}/zarr.json").write_bytes(metadata)
    with serving(root) as server, only(browser, server):
        browser.open(server.url)
        names = [name for name, _ in links(browser) if name.startswith("station")]
        assert names == [f"station{number}/" for number in range(count)]
        assert "If its contents permit" in browser.run("return document.body.innerText")


def test_files_of_the_tree_run_no_scripts(browser, store, tmp_path):
    root = tmp_path / "scripts.zarr"
    shutil.copytree(store, root)
    script = "<script>document.documentElement.setAttribute('class', 'run')</script>"
    (root / "page.html").write_text(f"<!doctype html><body>{script}")
    (root / "picture.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg">{script}</svg>')
    with serving(root) as server:
        browser.open(server.url + "picture.svg")
        assert browser.run("return document.documentElement.tagName") == "svg"
        assert browser.run("return document.documentElement.getAttribute('class')") is None
        assert server.get("page.html")[1]["Content-Type"] == "application/octet-stream"
