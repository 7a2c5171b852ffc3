"""The ways to get credentials, on a server that checks signatures and gives temporary keys."""

import contextlib
import errno
import functools
import os
import random
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import obstore.store
import pytest
import zarr
from zarr.storage import ObjectStore

import accounts
import mounts
import servers
from accounts import OPEN
from mounts import Mount, MountFailed, is_alive, until_end, wait_until
from proxy import Fault, running

DATA = np.arange(64 * 100, dtype="i4").reshape(64, 100)
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
UNKNOWN = b"<Error><Code>InvalidAccessKeyId</Code></Error>"
METADATA = "http://169.254.169.254"


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The URL of a server with the data in two buckets."""
    with accounts.serve(tmp_path_factory.mktemp("server"), [servers.BUCKET, OPEN]) as url:
        for bucket in [servers.BUCKET, OPEN]:
            options = {"endpoint": url, "region": "us-east-1", "client_options": {"allow_http": True}}
            client = obstore.store.S3Store(bucket, prefix="data", **options, **accounts.KEYS)
            zarr.open_group(ObjectStore(client), mode="w").create_array("x", data=DATA, chunks=(1, 100))
        yield url


@pytest.fixture
def proxy(server):
    with running(server) as made:
        yield made


@pytest.fixture
def prefix():
    return "data"


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home/.aws").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def giver(server, monkeypatch, home):
    """A server of credentials, in an environment that has none. What is requested elsewhere arrives here, too."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    with accounts.giving(server) as made:
        monkeypatch.setenv("HTTP_PROXY", made.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield made


@pytest.fixture
def profile(giver, home):
    """`profile(name, setting=..)` adds a profile."""
    return functools.partial(accounts.add_profile, home)


@pytest.fixture
def way(request, giver, home, monkeypatch):
    """The giver of keys, which is asked in the way that the test names."""
    with accounts.asking(request.param, giver, home, monkeypatch) as asked:
        yield asked


def ways(*names):
    return pytest.mark.parametrize("way", names, indirect=True)


def read(m, *rows):
    for row in rows:
        assert (m / f"x/c/{row}/0").read_bytes() == DATA[row].tobytes()


def keys_of(requests):
    """The name of the key that signed each request."""
    return [re.search("Credential=([^/]*)/", it.headers["authorization"])[1] for it in requests]


def test_anonymous_requests_are_not_signed_and_read_open_data(proxy, giver, profile, tmp_path):
    profile("default", aws_access_key_id="wrong", aws_secret_access_key="wrong")
    options = ["--endpoint", proxy.url, "--anonymous"]
    with until_end(Mount("none", tmp_path / "mnt", *options, source=f"s3://{OPEN}/data")) as m:
        read(m, 1, 2)
        assert len(os.listdir(m / "x/c")) == 64
        made = proxy.take()
        assert made and not [it for it in made if "authorization" in it.headers or "x-amz-security-token" in it.headers]
    with pytest.raises(MountFailed, match="the server answered 403 Forbidden: AccessDenied"):
        Mount("none", tmp_path / "mnt", *options, source=f"s3://{servers.BUCKET}/data")


def test_the_requester_pays_for_each_request(proxy, mount, giver, profile):
    profile("default", aws_access_key_id="any", aws_secret_access_key="any")
    with mount("--requester-pays") as m:
        zarr.create_array(m / f"new-{os.getpid()}", shape=(4, 4), chunks=(2, 2), dtype="i4")[:] = 7
        read(m, 1)
        (m / f"new-{os.getpid()}/c/0/1").unlink()
        subprocess.run(["rm", "-r", m / f"new-{os.getpid()}"], check=True)
        m.sync()
        made = proxy.take()
        assert {it.method for it in made} >= {"GET", "PUT", "POST"} and any("list-type" in it.path for it in made)
        assert {it.headers.get("x-amz-request-payer") for it in made} == {"requester"}
    with mount() as m:
        assert not [it for it in proxy.take() if "x-amz-request-payer" in it.headers]


def test_a_profile_is_named_by_an_option_or_a_variable_or_is_the_default(proxy, mount, giver, profile, monkeypatch):
    for name in ["default", "one", "two"]:
        # Keys come before programs, as they do for the programs of Amazon.
        profile(name, credential_process="false")
        profile(name, file="credentials", aws_access_key_id=name, aws_secret_access_key="any")

    def used(*options):
        with pytest.raises(MountFailed, match="the server answered 403 Forbidden: InvalidAccessKeyId"), mount(*options):
            pass
        return set(keys_of(proxy.take()))

    assert used() == {"default"}
    monkeypatch.setenv("AWS_PROFILE", "one")
    assert used() == {"one"}
    assert used("--profile", "two") == {"two"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    assert used() == {"environment"}
    assert used("--profile", "two") == {"two"}


def test_a_profile_has_the_region_and_the_server(proxy, giver, profile, monkeypatch, tmp_path):
    profile("far", file="credentials", aws_access_key_id="any", aws_secret_access_key="any")
    profile("far", region="eu-north-9", endpoint_url=proxy.url)
    source = f"s3://{servers.BUCKET}/data"
    with until_end(Mount("none", tmp_path / "mnt", "--profile", "far", source=source)) as m:
        read(m, 1)
        assert all("/eu-north-9/s3/" in it.headers["authorization"] for it in proxy.take())
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with until_end(Mount("none", tmp_path / "mnt", "--profile", "far", source=source)) as m:
        assert all("/us-east-1/s3/" in it.headers["authorization"] for it in proxy.take())


@ways("process", "aws", "container", "task", "web identity")
def test_keys_sign_all_requests_until_they_end(proxy, mount, way):
    with mount() as m:
        read(m, 1, 2)
        made = proxy.take()
        assert set(keys_of(made)) == set(way.given) and len(way.given) == 1
        assert all(it.headers["x-amz-security-token"] for it in made)
    (method, path, headers), *_ = way.requests
    if path.startswith("/keys") and "authorization" in headers:
        assert headers["authorization"] == "a-token"
    if path.startswith("http"):
        assert path == "http://169.254.170.2/v2/keys"
    if method == "POST":
        assert "WebIdentityToken=a-token" in path and "role%2Freader" in path


@ways("process", "container", "web identity")
def test_keys_are_renewed_once_before_they_end(proxy, mount, way):
    with contextlib.ExitStack() as stack:
        # Keys are renewed 300 s before they end: a while after the mount was made, which takes its time on a busy machine.
        for seconds in (2, 20, 60):
            stack.close()
            began, way.lasts = time.monotonic(), 300 + seconds
            m = stack.enter_context(mount())
            way.lasts = 3600
            assert (m / "x/zarr.json").exists()
            if time.monotonic() < began + seconds:
                break
        time.sleep(seconds + 0.1)
        proxy.take()
        before = len(way.given)
        # Here and there, so that none is read ahead.
        rows = list(range(64))
        random.Random(7).shuffle(rows)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda row: read(m, row), rows[:8]))
        # Keys that are still good sign requests until the others are there.
        assert wait_until(lambda: len(way.given) > before)
        proxy.take()
        left = iter(enumerate(rows[8:]))

        def are_used():
            number, row = next(left)
            time.sleep(0.01 * number)
            read(m, row)
            return way.given[before] in keys_of(proxy.take())

        # The program ends a moment before zarrfs has read the keys that it printed.
        assert wait_until(are_used)
        assert len(way.given) == before + 1


@ways("process", "container", "web identity")
def test_keys_that_end_soon_are_not_renewed_for_each_request(proxy, mount, way):
    way.lasts = 60
    with mount() as m:
        read(m, *range(0, 64, 4))
        assert len(way.given) <= 8


@ways("process", "container", "web identity")
def test_keys_that_cannot_be_renewed_are_used_until_they_end(proxy, mount, way):
    way.lasts = 302
    with mount("--retry-for", "1s") as m:
        m.allow(".*")
        time.sleep(2.1)
        way.fault = 500, "not now"
        read(m, 1, 2)


@ways("process", "container", "web identity")
@pytest.mark.parametrize("status, body", [(400, EXPIRED), (403, UNKNOWN)], ids=["expired", "unknown"])
def test_keys_that_the_server_refuses_are_renewed_and_the_request_goes_on(proxy, mount, way, status, body):
    with mount() as m:
        read(m, 1)
        ended = f"Credential={way.given[0]}/"
        proxy.faults = [Fault(lambda request: ended in request.headers["authorization"], status=status, body=body)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda row: read(m, row), range(0, 64, 8)))
        assert len(way.given) == 2


@ways("process", "container", "web identity")
def test_a_server_that_goes_on_refusing_is_an_error_until_it_accepts(proxy, mount, way):
    with mount() as m:
        read(m, 1)
        proxy.faults = [Fault(lambda request: True, status=400, body=EXPIRED)]
        m.refused(errno.EACCES, "the server answered 400.*ExpiredToken: The provided", lambda: read(m, 20))
        proxy.faults = []
        read(m, 20)


def test_keys_in_a_file_are_read_again_when_the_server_refuses_them(proxy, mount, giver, profile, home):
    profile("default", file="credentials", aws_access_key_id="any", aws_secret_access_key="any")
    with mount() as m:
        read(m, 1)
        proxy.faults = [Fault(lambda request: "x-amz-security-token" not in request.headers, status=403, body=UNKNOWN)]
        keys = accounts.temporary_keys(giver.server_of_keys)
        names = {"AccessKeyId": "aws_access_key_id", "SecretAccessKey": "aws_secret_access_key"}
        (home / ".aws/credentials").unlink()
        profile("default", "credentials", **{names.get(name, "aws_session_token"): keys[name] for name in keys})
        read(m, 2)


@ways("process", "container")
def test_a_signal_ends_a_read_that_waits_for_keys(proxy, mount, way):
    way.lasts = 2
    with mount() as m:
        m.allow(".*")
        way.silent = True
        time.sleep(2.2)
        with subprocess.Popen(["cat", m / "x/c/5/0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as reading:
            time.sleep(0.5)
            os.kill(m.pid, signal.SIGTERM)
            has_ended = wait_until(lambda: not is_alive(m.pid), 7)
            way.silent = False
            assert has_ended and reading.wait(60) != 0


def fails(mount, *options, within=4.0):
    """What a mount says that fails in time: before a server that does not answer were given up, after 5 s."""
    began = time.monotonic()
    with pytest.raises(MountFailed) as failed, mount(*options):
        pass
    assert failed.value.code == 1 and time.monotonic() - began < within, failed.value
    return failed.value.said


def test_without_credentials_a_mount_fails_at_once_and_asks_no_machine(proxy, mount, giver):
    said = fails(mount)
    assert "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile" in said
    assert not giver.requests and not proxy.take()


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({}, 'the profile "work" has no credentials'),
        ({"credential_process": "echo No key. >&2; exit 1"}, 'the profile "work": its credential_process: No key.'),
        ({"credential_process": "exit 7"}, 'the profile "work": its credential_process: it failed'),
        ({"credential_process": "no-such-program"}, "no-such-program: not found"),
        ({"credential_process": "echo keys"}, 'the profile "work": its credential_process: it printed no JSON'),
        ({"credential_process": "echo {}"}, "it printed no AccessKeyId and SecretAccessKey"),
        ({"aws_access_key_id": "any"}, 'the profile "work".*aws_secret_access_key'),
        ({"sso_session": "work"}, 'the profile "work": aws configure export-credentials: The SSO session has expired'),
    ],
    ids=["nothing", "fails", "fails silently", "missing", "text", "empty", "no secret", "single sign-on"],
)
def test_a_profile_that_gives_no_keys_is_a_sentence(mount, giver, profile, home, monkeypatch, settings, sentence):
    accounts.write_aws(home, monkeypatch, "echo The SSO session has expired. >&2; exit 255")
    profile("work", region="us-east-1", **settings)
    assert re.search(sentence, fails(mount, "--profile", "work"))


def test_a_program_aws_of_version_1_is_named(mount, giver, profile, home, monkeypatch):
    usage = "usage: aws [options]\naws: error: argument subcommand: Invalid choice, valid choices are:\n\nset | get"
    accounts.write_aws(home, monkeypatch, f"echo '{usage}' >&2; exit 2")
    profile("work", sso_session="work")
    assert "version 2 of the program aws is needed" in fails(mount, "--profile", "work")


def test_what_is_missing_is_named(mount, giver, profile, monkeypatch):
    assert 'no profile "nothing" in ' in fails(mount, "--profile", "nothing")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    assert "AWS_SECRET_ACCESS_KEY" in fails(mount)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "the server answered 403 Forbidden: SignatureDoesNotMatch" in fails(mount)
    profile("work", sso_session="work")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "aws configure export-credentials: the program is not installed" in fails(mount, "--profile", "work")


@ways("container", "task", "web identity")
@pytest.mark.parametrize("fault", [(403, "not you"), (404, "no role"), (200, "text")], ids=["403", "404", "text"])
def test_a_server_of_credentials_that_has_none_is_named(proxy, mount, way, fault):
    way.fault = fault
    assert "no credentials from the " in fails(mount)
    assert not proxy.take()


@ways("container", "web identity")
def test_a_token_file_that_is_missing_is_named(mount, way, home):
    (home / "token").unlink()
    assert str(home / "token") in fails(mount)


def test_variables_that_are_empty_count_as_not_set(mount, giver, profile, monkeypatch):
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/keys")
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_REGION", "AWS_ROLE_ARN"]:
        monkeypatch.setenv(name, "")
    with mount() as m:
        read(m, 1)


def test_a_container_without_a_token_file_is_named(mount, giver, monkeypatch):
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{giver.url}/keys")
    assert "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE" in fails(mount)
    assert not giver.requests


def test_a_machine_of_amazon_is_asked_for_the_keys_of_its_role(proxy, giver):
    command = [mounts.BIN, "cat", "--as", "raw", "--endpoint", proxy.url, f"s3://{servers.BUCKET}/data/x"]
    amazon = "mount -t tmpfs none /sys/class && mkdir -p /sys/class/dmi/id && cd /sys/class/dmi/id"
    amazon = f'{amazon} && echo Amazon EC2 > sys_vendor && exec "$@"'
    alone = ["unshare", "-m" if os.geteuid() == 0 else "-rm"]
    done = subprocess.run([*alone, "sh", "-c", amazon, "sh", *command], capture_output=True)
    assert done.stdout == DATA.tobytes(), done.stderr.decode()
    paths = [path.removeprefix(METADATA) for _, path, _ in giver.requests]
    roles = "/latest/meta-data/iam/security-credentials/"
    assert paths == ["/latest/api/token", roles, f"{roles}a-role"]
    assert giver.requests[2][2]["x-aws-ec2-metadata-token"] == "token-of-the-machine"
    assert set(keys_of(proxy.take())) == set(giver.given)
