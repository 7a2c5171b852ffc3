"""`zarrfs serve` in a test: a server that ends with it, and requests."""

import contextlib
import re
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from mounts import BIN, PATIENCE


class Server:
    """A server of a store, until `end`."""

    def __init__(self, store, *options):
        listen = [] if "--listen" in options else ["--listen", "127.0.0.1:0"]
        command = [BIN, "serve", str(store), *listen, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://"), self.process.stderr.read()
        self.port = int(re.search(r":(\d+)/", self.url)[1])
        self.root = "/" + self.url.split("/", 3)[3]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        _, said = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, said
        # A client may take 15 s for a request, and 60 s for an answer. The server does not wait so long.
        assert time.monotonic() - started < 12
        return said

    def get(self, path, method="GET", **headers):
        """The status, the headers and the body of an answer."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, method=method, headers=sent)
        opener = urllib.request.build_opener(NoRedirect)
        try:
            with opener.open(request, timeout=PATIENCE) as reply:
                return reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def raw(self, request, patience=PATIENCE):
        """All that comes for the bytes of a request."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience) as connection:
            connection.sendall(request)
            said = b""
            while part := connection.recv(1 << 16):
                said += part
        return said

    def memory(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


@contextlib.contextmanager
def serving(store, *options):
    server = Server(store, *options)
    try:
        yield server
    except BaseException:
        server.process.kill()
        server.process.communicate()
        raise
    server.end()
