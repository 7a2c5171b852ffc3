"""A proxy before an HTTP server: it delays, logs requests, and injects faults.

    python proxy.py LISTEN SERVER [--delay SECONDS] [--log FILE]

LISTEN and SERVER are HOST:PORT. Bytes arrive `delay` later in each direction, so a round trip takes
twice as long; requests on one connection do not wait for each other's delay. Each line of the log
is `METHOD PATH STATUS BYTES`. The control connection of `Proxy` (in this process) sets faults: see
`Fault`.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import threading
import time
from urllib.parse import unquote, urlparse


@dataclasses.dataclass
class Fault:
    """What happens to the requests that `applies` says.

    status: answer with this status instead of asking the server, with `headers` and `body`.
    instead: called with the request, returns the status, the headers and the body to answer with.
    cut: close the connection after so many bytes of the body of the answer; from 0 to 1, it is a
        part of the body.
    lose: let the server answer, then close the connection without a byte of the answer.
    silent: never answer, or be silent after `cut`.
    pace: seconds before each byte of the body of the answer.
    takes: seconds before each 256 KiB of the body of the request.
    change: called with the head of the answer (bytes), returns another.
    """

    applies: object
    status: int = 0
    headers: dict = dataclasses.field(default_factory=dict)
    body: bytes = b""
    instead: object = None
    cut: float | int | None = None
    lose: bool = False
    silent: bool = False
    pace: float = 0
    takes: float = 0
    change: object = None


@dataclasses.dataclass
class Request:
    number: int
    method: str
    path: str
    headers: dict
    status: int = 0
    length: int = 0


class Delayed:
    """Writes bytes to `writer` when they are due."""

    def __init__(self, writer, delay):
        self.writer, self.delay = writer, delay
        self.queue = asyncio.Queue(64)
        self.task = asyncio.ensure_future(self.run())

    async def write(self, data):
        await self.queue.put((time.monotonic() + self.delay, data))

    async def close(self):
        await self.write(None)
        await self.task

    async def run(self):
        while True:
            due, data = await self.queue.get()
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if data is None:
                return
            try:
                self.writer.write(data)
                await self.writer.drain()
            except (ConnectionError, RuntimeError):
                pass


def headers_of(head):
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, value in pairs}


async def chunks(reader, length):
    """The body of a message: so many bytes, or in chunks if `length` is None."""
    if length is None:
        while True:
            line = await reader.readuntil(b"\r\n")
            yield line
            size = int(line.split(b";")[0], 16)
            yield await reader.readexactly(size + 2)
            if size == 0:
                return
    while length:
        data = await reader.read(min(length, 1 << 18))
        if not data:
            raise ConnectionResetError
        length -= len(data)
        yield data


def length_of(headers):
    if "chunked" in headers.get("transfer-encoding", ""):
        return None
    return int(headers.get("content-length", 0))


class Proxy:
    def __init__(self, listen, server, delay=0.0, log=None):
        self.listen, self.server, self.delay = listen, server, delay
        self.log = open(log, "a", buffering=1) if log else None
        self.requests = []
        self.count = 0
        self.faults = []
        self.under_way = 0
        self.most_under_way = 0

    async def start(self):
        host, port = self.listen
        self.listener = await asyncio.start_server(self.serve, host, port, limit=1 << 20)
        host, port = self.listener.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"

    def take(self):
        """The requests since the last `take`."""
        made, self.requests = self.requests, []
        return made

    async def close(self):
        """Ends all connections, and takes no more."""
        self.listener.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def serve(self, reader, writer):
        try:
            await self.connection(reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, OSError):
            pass
        finally:
            writer.close()

    async def connection(self, reader, writer):
        up_reader, up_writer = await asyncio.open_connection(*self.server, limit=1 << 20)
        up, down = Delayed(up_writer, self.delay), Delayed(writer, self.delay)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
                # The clients of Google escape each slash in a key.
                name, mark, query = path.partition("?")
                request = Request(self.count, method, unquote(name) + mark + query, headers_of(head))
                self.count += 1
                self.requests.append(request)
                self.under_way += 1
                self.most_under_way = max(self.most_under_way, self.under_way)
                try:
                    if not await self.exchange(request, head, reader, up, up_reader, down):
                        return
                finally:
                    self.under_way -= 1
                    if self.log:
                        print(request.method, request.path, request.headers.get("range", "-"),
                              request.status, request.length, file=self.log)
        finally:
            await down.close()
            await up.close()
            up_writer.close()

    async def exchange(self, request, head, reader, up, up_reader, down):
        """Passes one request on and its answer back; false if the connection ends."""
        fault = next((fault for fault in self.faults if fault.applies(request)), None)
        body = chunks(reader, length_of(request.headers))
        is_silent = fault and fault.silent and fault.cut is None
        if fault and (is_silent or fault.instead or fault.status):
            async for _ in body:
                pass
            if is_silent:
                await asyncio.sleep(3600)
            status, headers, content = fault.status, fault.headers, fault.body
            if fault.instead:
                status, headers, content = fault.instead(request)
            request.status = status
            lines = [f"HTTP/1.1 {status} Fault", f"Content-Length: {len(content)}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            await down.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            if request.method != "HEAD":
                await down.write(content)
            return True
        await up.write(head)
        if request.headers.get("expect", "").lower() == "100-continue":
            await down.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async for data in body:
            if fault and fault.takes:
                await asyncio.sleep(fault.takes)
            await up.write(data)
        answer = await up_reader.readuntil(b"\r\n\r\n")
        while answer.split(b" ", 2)[1] == b"100":
            answer = await up_reader.readuntil(b"\r\n\r\n")
        request.status = int(answer.split(b" ", 2)[1])
        headers = headers_of(answer)
        has_body = request.method != "HEAD" and request.status not in (204, 304)
        length = length_of(headers) if has_body else 0
        if fault and fault.lose:
            return False
        if fault and fault.change:
            answer = fault.change(answer)
        most = None
        if fault and fault.cut is not None:
            most = int(fault.cut * length) if isinstance(fault.cut, float) else fault.cut
            most = most if most >= 0 else length + most
        await down.write(answer)
        async for data in chunks(up_reader, length):
            if most is not None:
                data, most = data[:most], most - len(data[:most])
            request.length += len(data)
            if fault and fault.pace:
                for at in range(len(data)):
                    await asyncio.sleep(fault.pace)
                    await down.write(data[at : at + 1])
            else:
                await down.write(data)
            if most == 0:
                await asyncio.sleep(3600 if fault.silent else 0)
                return False
        return True


@contextlib.contextmanager
def running(server):
    """A proxy before the server at a URL, in a thread of this process."""
    url = urlparse(server)
    made = Proxy(("127.0.0.1", 0), (url.hostname, url.port))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.start(), loop).result(60)
    made.end = lambda: asyncio.run_coroutine_threadsafe(made.close(), loop).result(60)
    yield made
    made.end()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("listen", type=address)
    parser.add_argument("server", type=address)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--log")
    args = parser.parse_args()
    proxy = Proxy(args.listen, args.server, args.delay, args.log)
    await proxy.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
