"""Faults of the network and the server: each at every request of a short run."""

import contextlib
import errno
import os
import re
import signal
import subprocess
import threading
import time

import numpy as np
import obstore
import pytest
import zarr
from zarr.storage import ObjectStore

import servers
from mounts import MountFailed, is_alive, wait_until
from proxy import Fault

LONG = os.environ.get("ZARRFS_LONG") == "1"
# What is struck in the normal run: each third request.
STEP = 1 if LONG else 3
only_long = pytest.mark.skipif(not LONG, reason="it waits for minutes; set ZARRFS_LONG=1")
DATA = np.random.default_rng(3).integers(0, 1 << 30, (3, 200, 300), dtype="i4")
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"


def with_header(name, value):
    """Returns a change of heads: the header has what `value` returns for its value, or is not there if that is None."""

    def change(head):
        pattern = re.compile(rb"\r\n(%s): ([^\r]*)" % name.encode(), re.IGNORECASE)

        def changed(found):
            new = value(found[2].decode())
            return b"" if new is None else b"\r\n%s: %s" % (found[1], new.encode())

        return pattern.sub(changed, head)

    return change


def other_range(value):
    """A `Content-Range` that begins a byte later."""
    first, last, length = (int(number) for number in re.findall(r"\d+", value))
    return f"bytes {first + 1}-{last + 1}/{length}"


def whole(request):
    """The answer of a server that does not know ranges."""
    got = obstore.get(servers.client(), request.path.removeprefix(f"/{servers.BUCKET}/"))
    modified = got.meta["last_modified"].strftime("%a, %d %b %Y %H:%M:%S GMT")
    return 200, {"ETag": got.meta["e_tag"], "Last-Modified": modified}, bytes(got.bytes())


# What happens to one request; the run then goes on.
ONCE = {
    "500": {"status": 500},
    "503": {"status": 503, "headers": {"Retry-After": "0"}, "body": SLOW_DOWN},
    "429": {"status": 429},
    "reset before the answer": {"lose": True},
    "reset after no byte": {"cut": 0},
    "reset after a byte": {"cut": 1},
    "reset after half": {"cut": 0.5},
    "reset before the last byte": {"cut": -1},
    "503 for two seconds": {"status": 503, "headers": {"Retry-After": "2"}, "body": SLOW_DOWN},
    "half of the body": {"change": with_header("content-length", lambda len: str(int(len) // 2)), "cut": 0.5},
    "another tag": {"change": with_header("etag", lambda tag: '"%s"' % tag.strip('"')[::-1])},
    "no tag": {"change": with_header("etag", lambda tag: None)},
}
# The same for requests of ranges.
RANGES = {
    "another range": {"change": with_header("content-range", other_range)},
    "no range": {"change": with_header("content-range", lambda value: None)},
    "a shorter range": {
        "change": lambda head: with_header("content-range", lambda it: re.sub(r"\d+/", "0/", it))(
            with_header("content-length", lambda len: "1")(head)
        ),
        "cut": 1,
    },
    "the whole value": {"instead": whole},
}
# Refusals of credentials, which a new try with the same ones may not mend.
REFUSALS = {"403": {"status": 403}}
if servers.PROVIDER == "s3":
    REFUSALS["an expired token"] = {"status": 400, "body": EXPIRED}
SILENCES = {"silence": {"silent": True}, "silence after half": {"cut": 0.5, "silent": True}}


@pytest.fixture
def array(prefix):
    root = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")
    root.create_array("x", data=DATA, chunks=(1, 200, 300), shards=(3, 200, 300))
    root.create_array("y", data=DATA, chunks=(1, 200, 300))


def is_any(request):
    return True


def is_range(request):
    return "range" in request.headers


def strike(proxy, at, fault, among=is_any, count=1):
    """Breaks request `at` of those `among` the next ones, and those after it if `count` says so: what is tried again
    after that is not broken. Returns the broken ones."""
    found, struck = [], []

    def applies(request):
        if not among(request):
            return False
        found.append(request)
        if len(found) <= at or len(struck) == count:
            return False
        struck.append(request)
        return True

    proxy.faults = [Fault(applies, **fault)]
    return struck


# What a short run does. Each is whether it is right.
STEPS = {
    "ls": lambda m: sorted(os.listdir(m.path)) == ["x", "y", "zarr.json"],
    "ls of chunks": lambda m: sorted(os.listdir(m / "y/c")) == ["0", "1", "2"],
    "an inner chunk": lambda m: (m / "x/c/1/0/0").read_bytes() == DATA[1].tobytes(),
    "a chunk": lambda m: (m / "y/c/1/0/0").read_bytes() == DATA[1].tobytes(),
    "a missing chunk": lambda m: not (m / "y/c/7/0/0").exists(),
    "a view of shards": lambda m: np.array_equal(servers.load(m / "x.npy"), DATA),
    "a view of chunks": lambda m: np.array_equal(servers.load(m / "y.npy"), DATA),
}


def check_all(m):
    for name, is_right in STEPS.items():
        assert is_right(m), name


def run(mount, *options):
    """Mounts, lists and reads in each way; the number of requests is always the same."""
    with mount(*options) as m:
        check_all(m)


def failures(m, seconds):
    """The errnos of the steps that failed; the others were right, and none took longer than `seconds`."""
    numbers = []
    for name, is_right in STEPS.items():
        began = time.monotonic()
        try:
            assert is_right(m), name
        except OSError as error:
            numbers.append(error.errno)
        took = time.monotonic() - began
        assert took < seconds, f"{name} took {took:.0f} s"
    return numbers


def strike_each(proxy, fault, act, among=is_any, first=0, step=STEP, count=1):
    """Does `act` again and again, and breaks other requests of those `among` it each time."""
    proxy.take()
    act()
    made = len([it for it in proxy.take() if among(it)])
    places = range(first % step, made, step)
    struck = 0
    for at in places:
        broken = strike(proxy, at, fault, among, count)
        act()
        struck += bool(broken)
    # What is read ahead depends on the time, so the last ones may not be made.
    assert struck >= len(places) * 0.5, f"only {struck} of {len(places)} requests were made"


@pytest.mark.parametrize("name", ONCE)
def test_a_fault_that_passes_is_not_seen(proxy, mount, array, name):
    step = 1 if list(ONCE).index(name) < 8 else STEP
    strike_each(proxy, ONCE[name], lambda: run(mount), first=list(ONCE).index(name), step=step)


@pytest.mark.parametrize("name", RANGES)
def test_a_wrong_range_is_read_again(proxy, mount, array, name):
    strike_each(proxy, RANGES[name], lambda: run(mount), is_range, list(RANGES).index(name))


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_refusals_that_pass_are_errors_and_never_fill_values(proxy, mount, array, name, count):
    def act():
        try:
            with mount() as m:
                m.allow("the server answered 40[03]")
                assert set(failures(m, 30)) <= {errno.EACCES}
                check_all(m)
        except MountFailed as failed:
            assert "the server answered 40" in failed.said

    strike_each(proxy, REFUSALS[name], act, step=1, count=count)


def test_a_refusal_that_ends_after_two_requests_is_never_a_fill_value(proxy, mount, array):
    def asks_for_chunk(request):
        return "y/c/1" in request.path or "none-" in request.path

    with mount() as m:
        m.allow("the server answered 403")
        assert (m / "y/zarr.json").exists() and (m / "y.npy").exists()
        strike(proxy, 0, {"status": 403}, asks_for_chunk, count=2)
        with contextlib.suppress(PermissionError):
            assert np.array_equal(servers.load(m / "y.npy"), DATA)
        proxy.faults = []
        assert np.array_equal(servers.load(m / "y.npy"), DATA)


@pytest.mark.s3
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_that_passes_is_not_seen_with_the_credentials_of_a_profile(
    proxy, mount, array, name, tmp_path, monkeypatch
):
    (tmp_path / "keys").write_text("[some]\naws_access_key_id = any\naws_secret_access_key = any\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    strike_each(proxy, REFUSALS[name], lambda: run(mount, "--profile", "some"))


@pytest.mark.parametrize("name", ["silence", pytest.param("silence after half", marks=only_long)])
def test_a_silent_server_is_asked_again(proxy, mount, array, name):
    began = time.monotonic()
    run(mount)
    without = time.monotonic() - began
    # Of the inner chunk.
    strike(proxy, 7, SILENCES[name])
    began = time.monotonic()
    run(mount)
    # It is given up after 10 s, once.
    assert 9 < time.monotonic() - began < 19 + without


@only_long
@pytest.mark.parametrize("name", SILENCES)
def test_silence_at_each_request_is_not_seen(proxy, mount, array, name):
    strike_each(proxy, SILENCES[name], lambda: run(mount))


STAYS = {
    "403": (REFUSALS["403"], {errno.EACCES}),
    **({"an expired token": (REFUSALS["an expired token"], {errno.EACCES})} if "an expired token" in REFUSALS else {}),
    "500": ({"status": 500}, {errno.EIO}),
    "503": (ONCE["503 for two seconds"], {errno.EIO}),
    "no answer": ({"lose": True}, {errno.EIO}),
    "half of the body": (ONCE["half of the body"], {errno.EIO}),
    "another range": (RANGES["another range"], {errno.EIO}),
    "no range": (RANGES["no range"], {errno.EIO}),
    "a shorter range": (RANGES["a shorter range"], {errno.EIO}),
    "the whole value": (RANGES["the whole value"], {errno.EIO}),
}


RARE = ["503", "no range", "a shorter range", "the whole value"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=only_long) if name in RARE else name for name in STAYS])
def test_a_fault_that_stays_is_an_error_and_never_a_fill_value(proxy, mount, array, name):
    read_while_a_fault_stays(proxy, mount, name)


def read_while_a_fault_stays(proxy, mount, name):
    """Reads chunks through a fault, and all when it has ended. `mount` makes a mount with options."""
    fault, numbers = STAYS[name]
    with mount("--retry-for", "200ms") as m:
        assert (m / "y/zarr.json").exists() and (m / "x/zarr.json").exists()
        m.expect("the server answered|no connection|closed|error|the server sent|[Rr]ange|Requested")
        proxy.faults = [Fault(is_range, **fault)]
        for path in ["y/c/1/0/0", "x/c/1/0/0", "y.npy"]:
            with pytest.raises(OSError) as refused:
                (m / path).read_bytes()
            assert refused.value.errno in numbers, f"{path}: {refused.value}"
        proxy.faults = []
        check_all(m)


@pytest.mark.parametrize("name", STAYS)
def test_a_mount_fails_or_works_while_a_fault_stays(proxy, mount, array, name):
    mount_while_a_fault_stays(proxy, mount, name)


def mount_while_a_fault_stays(proxy, mount, name):
    """Mounts through a fault, and reads all when it has ended. `mount` makes a mount with options."""
    fault, numbers = STAYS[name]
    proxy.faults = [Fault(is_any if "status" in fault else is_range, **fault)]
    with contextlib.suppress(MountFailed), mount("--retry-for", "200ms") as m:
        m.allow(".*")
        assert set(failures(m, 31)) <= numbers
        proxy.faults = []
        check_all(m)


def test_a_server_that_is_overloaded_for_seconds_is_waited_for(proxy, mount, array):
    with mount() as m:
        assert (m / "y/zarr.json").exists()
        proxy.faults = [Fault(is_any, **ONCE["503"])]
        ends = threading.Timer(6, proxy.faults.clear)
        ends.start()
        m.allow("the server answered 503")
        assert (m / "y/c/1/0/0").read_bytes() == DATA[1].tobytes()
        ends.join()
        check_all(m)


@pytest.mark.s3
def test_a_server_without_tags_is_read(proxy, mount, array):
    proxy.faults = [Fault(is_any, **ONCE["no tag"])]
    run(mount)


@only_long
@pytest.mark.parametrize("name", SILENCES)
def test_silence_that_stays_is_an_error_in_bounded_time(proxy, mount, array, name):
    with mount("--retry-for", "5s") as m:
        assert (m / "y/zarr.json").exists() and (m / "x/zarr.json").exists()
        m.allow(".*")
        proxy.faults = [Fault(is_range, **SILENCES[name])]
        # A step is several system calls.
        assert set(failures(m, 90)) == {errno.ETIMEDOUT}
        proxy.faults = []
        check_all(m)


@pytest.mark.parametrize(
    "shape, shards, read, least",
    [
        ((3, 500), (3, 500), "x/c/1/0", 2),
        ((3, 500), (3, 500), "x.npy", 2),
        # So long that a chunk takes two requests.
        ((1, 4 << 20), None, "x/c/0/0", 2),
    ],
)
def test_requests_before_and_after_a_change_are_never_mixed(proxy, mount, prefix, shape, shards, read, least):
    client, key = servers.client(prefix), "x/c/0/0"
    # The inner chunks are of different lengths.
    old = np.random.default_rng(0).integers(0, 1 << 30, shape, "i4") >> (8 * np.arange(shape[0], dtype="i4"))[:, None]
    versions, stored = [old, old[::-1, ::-1]], []
    for data in versions:
        root = zarr.open_group(ObjectStore(client), mode="w")
        root.create_array("x", data=data, chunks=(1, shape[1]), shards=shards)
        stored.append(bytes(obstore.get(client, key).bytes()))
    if "c/" in read:
        versions = [data[int(read.split("/")[2])] for data in versions]
    for at in range(10):
        obstore.put(client, key, stored[0])
        made = []

        def applies(request, at=at, made=made):
            if request.path.endswith(key):
                made.append(request)
                if len(made) == at + 1:
                    obstore.put(client, key, stored[1])
            return False

        proxy.faults = [Fault(applies)]
        with mount() as m:
            if not shards:
                # This says how long the value is.
                os.listdir(m / "x/c/0")
            found = servers.load(m / read) if read.endswith(".npy") else np.frombuffer((m / read).read_bytes(), "i4")
        rows = found.reshape(-1, shape[1])
        wanted = [data.reshape(rows.shape) for data in versions]
        are_whole = [any((row == data[number]).all() for data in wanted) for number, row in enumerate(rows)]
        assert all(are_whole), f"replaced at request {at}: inner chunks of one version: {are_whole}"
        if len(made) <= at:
            break
    assert at >= least, f"only {at} requests were made"


@only_long
def test_a_tag_that_always_changes_is_an_error_or_the_right_bytes(proxy, mount, array):
    count = iter(range(1 << 30))
    change = with_header("etag", lambda tag: '"%032x"' % next(count))
    with mount() as m:
        m.allow("keep replacing")
        proxy.faults = [Fault(is_range, change=change)]
        assert set(failures(m, 90)) <= {errno.ESTALE, errno.EIO}
        proxy.faults = []
        check_all(m)
    assert next(count) < 500, "requests"


@only_long
def test_a_slow_answer_is_not_cut(proxy, mount, prefix):
    root = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")
    root.create_array("t", data=np.arange(1000, dtype="i4"), chunks=(1000,), compressors=None)
    with mount("--retry-for", "5s") as m:
        assert (m / "t/zarr.json").exists()
        proxy.faults = [Fault(lambda request: request.path.endswith("t/c/0"), pace=0.01)]
        began = time.monotonic()
        assert (m / "t/c/0").read_bytes() == np.arange(1000, dtype="i4").tobytes()
        assert 39 < time.monotonic() - began


@only_long
def test_an_answer_that_drips_is_given_up(proxy, mount, array):
    with mount("--retry-for", "5s") as m:
        assert (m / "y/zarr.json").exists()
        m.allow("less than 512 bytes")
        proxy.faults = [Fault(lambda request: "/y/c/" in request.path, pace=3)]
        with pytest.raises(OSError) as failed:
            (m / "y/c/0/0/0").read_bytes()
        assert failed.value.errno == errno.ETIMEDOUT


def test_a_server_that_refuses_at_mount_is_named(proxy, mount, array):
    proxy.faults = [Fault(lambda request: True, status=403, body=b"<Error><Code>AccessDenied</Code></Error>")]
    with pytest.raises(MountFailed) as failed, mount():
        pass
    assert "the server answered 403" in failed.value.said and "AccessDenied" in failed.value.said


def test_a_mount_of_a_server_that_is_gone_can_be_unmounted(proxy, mount, array):
    with mount("--retry-for", "1s") as m:
        assert (m / "y/zarr.json").exists()
        m.allow(".*")
        proxy.faults = [Fault(lambda request: True, lose=True)]
        with pytest.raises(OSError):
            (m / "y/c/0/0/0").read_bytes()


@pytest.mark.parametrize("fault", [{"silent": True}, {"pace": 1}])
@pytest.mark.parametrize("options", [(), ("-o", "ro")])
def test_a_signal_ends_a_read_from_a_silent_server(proxy, mount, array, options, fault):
    with mount(*options) as m:
        assert (m / "y/zarr.json").exists()
        m.allow(".*")
        proxy.faults = [Fault(lambda request: "/y/c/" in request.path, **fault)]
        with subprocess.Popen(["cat", m / "y/c/0/0/0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as reading:
            time.sleep(1)
            os.kill(m.pid, signal.SIGTERM)
            # Sooner than the server would be given up.
            assert wait_until(lambda: not is_alive(m.pid), 7)
            assert reading.wait(60) != 0


def hides(request):
    return request.method in ("GET", "HEAD")


def test_a_bucket_that_answers_403_for_what_is_missing_is_recognized(proxy, mount, prefix):
    for number, name in [(2, "two"), (3, "three")]:
        store = ObjectStore(servers.client(f"{prefix}/{name}"))
        root = zarr.open_group(store, mode="w", zarr_format=number)
        array = root.create_array("x", shape=(4, 4), chunks=(2, 2), dtype="i4", fill_value=7)
        array[:2] = 1
    no_list = Fault(servers.is_listing, status=403)
    hidden = Fault(hides, change=lambda head: re.sub(rb" 404 [^\r]*", b" 403 Forbidden", head, count=1))
    for name in ["two", "three"]:
        proxy.faults = [no_list, hidden]
        with mount(below=name) as m:
            m.expect("answers 403 for missing objects")
            m.allow("the server does not list names")
            assert (servers.load(m / "x.npy")[:2] == 1).all() and (servers.load(m / "x.npy")[2:] == 7).all()
        # Refused for another reason: no fill values.
        proxy.faults = []
        with mount(below=name) as m:
            assert (m / "x/zarr.json").exists() or (m / "x/.zarray").exists()
            m.allow(".*")
            proxy.faults = [Fault(hides, status=403)]
            with pytest.raises(OSError) as refused:
                (m / "x/c/0/0").read_bytes()
            assert refused.value.errno == errno.EACCES
