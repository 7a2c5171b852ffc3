"""A server of S3 with an account, which checks signatures and gives temporary keys; and servers of credentials."""

import contextlib
import datetime
import glob
import http.server
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

from mounts import wait_until

# Everyone may read this bucket. All else needs the account, or temporary keys of it.
OPEN = "open"
KEYS = {"access_key_id": "any", "secret_access_key": "any"}
SETTINGS = {
    "s3.json": {
        "identities": [
            {"name": "tests", "credentials": [{"accessKey": "any", "secretKey": "any"}], "actions": ["Admin"]},
            {"name": "anonymous", "actions": [f"Read:{OPEN}", f"List:{OPEN}"]},
        ]
    },
    "iam.json": {"sts": {"issuer": "tests", "signingKey": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}},
}


@contextlib.contextmanager
def serve(work, buckets):
    """Starts the server, makes the buckets, and yields its URL."""
    for name, settings in SETTINGS.items():
        (work / name).write_text(json.dumps(settings))
    with contextlib.ExitStack() as free:
        tried = [free.enter_context(socket.socket()) for _ in range(8)]
        for it in tried:
            it.bind(("127.0.0.1", 0))
        ports = [it.getsockname()[1] for it in tried]
    command = [Path(sys.executable).with_name("weed"), "server", f"-dir={work}", "-ip=127.0.0.1", "-s3"]
    for part, port, second in zip(["master", "volume", "filer", "s3"], ports[:4], ports[4:], strict=True):
        command += [f"-{part}.port={port}", f"-{part}.port.grpc={second}"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=50", "-master.volumeSizeLimitMB=64"]
    command += [f"-s3.config={work}/s3.json", f"-s3.iam.config={work}/iam.json"]
    url = f"http://127.0.0.1:{ports[3]}"
    with open(work / "weed.log", "wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            for bucket in buckets:
                put = ["-X", "PUT", f"{url}/{bucket}", "-o", "/dev/null", "-w", "%{http_code}"]
                put += ["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]
                assert wait_until(lambda put=put: signed("s3", *put) == "200"), (work / "weed.log").read_text()
            yield url
        finally:
            process.kill()
            # It leaves its sockets.
            for name in [name for port in ports for name in glob.glob(f"/tmp/seaweedfs-*-{port}.sock")]:
                os.unlink(name)


def signed(service, *arguments):
    """What curl prints for a request that the account signs."""
    command = ["curl", "-s", "--aws-sigv4", f"aws:amz:us-east-1:{service}", "--user", "any:any", *arguments]
    return subprocess.run(command, capture_output=True, text=True).stdout


def temporary_keys(url):
    """New keys, which the server accepts only with their token."""
    answer = signed("sts", "-d", "Action=AssumeRole&Version=2011-06-15&RoleSessionName=tests", url)
    names = ["AccessKeyId", "SecretAccessKey", "SessionToken"]
    return {name: re.search(f"<{name}>(.*?)</", answer)[1] for name in names}


def certificate(path):
    """Makes a file with a certificate for this machine and its key, and one with the certificate alone."""
    names = ["-subj", "/CN=tests", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path]
    alone = path.with_suffix(".crt")
    command = ["openssl", "req", "-x509", "-days", "2", *names, *key, "-out", alone]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + alone.read_text())
    return path, alone


def add_profile(home, name, file="config", **settings):
    """Adds a profile to the file of settings, or that of keys."""
    section = name if file == "credentials" or name == "default" else f"profile {name}"
    lines = [f"[{section}]", *(f"{key} = {value}" for key, value in settings.items()), ""]
    with open(home / ".aws" / file, "a") as text:
        text.write("\n".join(lines))


def write_aws(home, variables, script):
    """Makes a script the program aws."""
    path = home / "bin/aws"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    variables.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


@contextlib.contextmanager
def asking(way, giver, home, variables):
    """Has keys come from a giver in one of the ways that there are, and yields that giver."""
    token = home / "token"
    token.write_text("a-token")
    if way == "process":
        add_profile(home, "default", credential_process=f"curl -sSf {giver.url}/keys")
    elif way == "aws":
        add_profile(home, "work", sso_session="work", sso_account_id="123456789012", sso_role_name="reader")
        variables.setenv("AWS_PROFILE", "work")
        arguments = "configure export-credentials --format process --profile work"
        write_aws(home, variables, f'[ "$*" = "{arguments}" ] && exec curl -sSf {giver.url}/keys')
    elif way == "container":
        variables.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{giver.url}/keys")
        variables.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
    elif way == "task":
        variables.setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/keys")
    elif way == "web identity":
        file, trusted = certificate(home / "tests.pem")
        variables.setenv("SSL_CERT_FILE", str(trusted))
        variables.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
        variables.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
        with giving(giver.server_of_keys, file) as sts:
            variables.setenv("AWS_ENDPOINT_URL_STS", sts.url)
            yield sts
        return
    yield giver


@contextlib.contextmanager
def giving(*arguments):
    """A giver that answers until the end of the block."""
    with Giver(*arguments) as made:
        yield made
        made.silent = False
        made.shutdown()


class Giver(http.server.ThreadingHTTPServer):
    """A server of credentials, as machines and containers have one. It gives new keys at each request.

    lasts: when the keys end, in seconds from now. fault: this status and text instead. silent: no answer."""

    daemon_threads = True

    def __init__(self, server, certificate=None):
        super().__init__(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.server_port}"
        # The requests, as (method, path, headers), and the names of the keys.
        self.requests, self.given = [], []
        self.server_of_keys, self.lasts, self.fault, self.silent = server, 3600, None, False
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, path):
        while self.silent:
            time.sleep(0.05)
        if self.fault:
            return self.fault
        if path.endswith("/latest/api/token"):
            return 200, "token-of-the-machine"
        if path.endswith("/security-credentials/"):
            return 200, "a-role"
        keys = temporary_keys(self.server_of_keys)
        self.given.append(keys["AccessKeyId"])
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self.lasts)
        keys["Expiration"] = until.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if action := re.search("Action=(AssumeRoleWithWebIdentity)", path):
            text = "".join(f"<{name}>{value}</{name}>" for name, value in keys.items())
            for name in ["Credentials", f"{action[1]}Result", f"{action[1]}Response"]:
                text = f"<{name}>{text}</{name}>"
            return 200, text
        return 200, json.dumps({"Version": 1, "Token": keys["SessionToken"], **keys})


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append((self.command, self.path, self.headers))
        status, text = self.server.answer(self.path)
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    do_POST = do_PUT = do_GET

    def log_message(self, *arguments):
        pass
