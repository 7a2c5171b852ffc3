"""A server of the XML API of Google Cloud Storage, in memory.

    python gcs.py PORT

No emulator that can be installed has both this API and its conditions (fake-gcs-server ignores `ifGenerationMatch`), so
this one follows the documentation: https://cloud.google.com/storage/docs/xml-api/overview. It has one bucket for each
name, takes any credentials, and knows what zarrfs and obstore use: objects with generations and conditions on them,
ranges, listings (version 2), uploads in parts.
"""

import base64
import hashlib
import itertools
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

NAMESPACE = 'xmlns="http://doc.s3.amazonaws.com/2006-03-01"'
generations = itertools.count(time.time_ns() // 1000)
lock = threading.Lock()
buckets = {}
uploads = {}


class Object:
    def __init__(self, content, metadata, parts=0):
        self.content, self.metadata = content, metadata
        self.generation = next(generations)
        # An object of parts has no MD5: its tag is made from its generation.
        tag = f"composite{self.generation}{parts}".encode() if parts else content
        self.tag = f'"{hashlib.md5(tag).hexdigest()}"'
        self.time = time.time()


class Refused(Exception):
    def __init__(self, status, code):
        super().__init__(code)
        self.status, self.code = status, code


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, str(value))
        if not any(name == "Content-Length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def route(self):
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        _, bucket, *key = unquote(url.path).split("/", 2)
        length = int(self.headers.get("Content-Length", 0))
        self.content = self.rfile.read(length)
        try:
            self.serve(bucket, key[0] if key else "")
        except Refused as refused:
            body = f"<?xml version='1.0'?><Error><Code>{refused.code}</Code></Error>".encode()
            self.answer(refused.status, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = route

    def serve(self, bucket, key):
        if not key and self.command == "PUT":
            buckets.setdefault(bucket, {})
            return self.answer(200)
        if bucket not in buckets:
            raise Refused(404, "NoSuchBucket")
        objects = buckets[bucket]
        if not key:
            return self.list(objects)
        if self.command == "POST":
            return self.upload(bucket, key)
        if "uploadId" in self.query:
            upload = uploads.get(self.query["uploadId"])
            if upload is None:
                raise Refused(404, "NoSuchUpload")
            if self.command == "DELETE":
                del uploads[self.query["uploadId"]]
                return self.answer(204)
            upload["parts"][int(self.query["partNumber"])] = self.content
            return self.answer(200, headers=[("ETag", f'"{hashlib.md5(self.content).hexdigest()}"')])
        method = {"GET": self.get, "HEAD": self.get, "PUT": self.put, "DELETE": self.delete}[self.command]
        method(objects, key)

    def check(self, found):
        """The conditions on generations, which are 0 for an object that is not there."""
        generation = found.generation if found else 0
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted is not None and int(wanted) != generation:
            raise Refused(412, "PreconditionFailed")

    def put(self, objects, key):
        metadata = {name.lower(): value for name, value in self.headers.items() if name.lower().startswith("x-goog-meta-")}
        with lock:
            self.check(objects.get(key))
            made = objects[key] = Object(self.content, metadata)
        self.answer(200, headers=[("ETag", made.tag), ("x-goog-generation", made.generation)])

    def delete(self, objects, key):
        with lock:
            self.check(objects.get(key))
            if objects.pop(key, None) is None:
                raise Refused(404, "NoSuchKey")
        self.answer(204)

    def get(self, objects, key):
        found = objects.get(key)
        if found is None:
            raise Refused(404, "NoSuchKey")
        self.check(found)
        if self.headers.get("If-Match", found.tag).strip('"') != found.tag.strip('"'):
            raise Refused(412, "PreconditionFailed")
        headers = [
            ("ETag", found.tag),
            ("Last-Modified", formatdate(found.time, usegmt=True)),
            ("x-goog-generation", found.generation),
            ("Accept-Ranges", "bytes"),
            *found.metadata.items(),
        ]
        total, wanted = len(found.content), self.headers.get("Range")
        if not wanted:
            return self.answer(200, found.content, [*headers, ("Content-Length", total)])
        first, last = wanted.removeprefix("bytes=").split("-")
        start = int(first) if first else max(total - int(last), 0)
        end = min(int(last) + 1, total) if first and last else total
        if start >= total:
            raise Refused(416, "InvalidRange")
        content = found.content[start:end]
        headers += [("Content-Range", f"bytes {start}-{end - 1}/{total}"), ("Content-Length", len(content))]
        self.answer(206, content, headers)

    def list(self, objects):
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        most = int(self.query.get("max-keys", 1000))
        after = base64.b64decode(self.query.get("continuation-token", "")).decode() or self.query.get("start-after", "")
        with lock:
            names = sorted((name.encode(), name) for name in objects if name.startswith(prefix))
            found = {name: objects[name] for _, name in names}
        entries, token = {}, ""
        for name, it in found.items():
            rest = name[len(prefix) :]
            directory = prefix + rest.split(delimiter)[0] + delimiter if delimiter and delimiter in rest else ""
            entry = directory or name
            if entry.encode() <= after.encode() or entry in entries:
                continue
            if len(entries) == most:
                token = list(entries)[-1]
                break
            entries[entry] = None if directory else it
        lines = [f"<?xml version='1.0'?><ListBucketResult {NAMESPACE}><IsTruncated>{str(bool(token)).lower()}</IsTruncated>"]
        for name, it in entries.items():
            if it is None:
                lines.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
            else:
                modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(it.time))
                lines.append(
                    f"<Contents><Key>{escape(name)}</Key><Generation>{it.generation}</Generation>"
                    f"<LastModified>{modified}</LastModified><ETag>{it.tag}</ETag><Size>{len(it.content)}</Size></Contents>"
                )
        if token:
            lines.append(f"<NextContinuationToken>{base64.b64encode(token.encode()).decode()}</NextContinuationToken>")
        self.answer(200, "".join([*lines, "</ListBucketResult>"]).encode(), [("Content-Type", "application/xml")])

    def upload(self, bucket, key):
        if "uploads" in self.query:
            number = str(next(generations))
            metadata = {name.lower(): it for name, it in self.headers.items() if name.lower().startswith("x-goog-meta-")}
            uploads[number] = {"parts": {}, "metadata": metadata}
            body = (
                f"<?xml version='1.0'?><InitiateMultipartUploadResult {NAMESPACE}><Bucket>{bucket}</Bucket>"
                f"<Key>{escape(key)}</Key><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
            )
            return self.answer(200, body.encode())
        if "x-goog-if-generation-match" in self.headers:
            # https://cloud.google.com/storage/docs/multipart-uploads: preconditions are not supported.
            raise Refused(400, "NotImplemented")
        upload = uploads.pop(self.query["uploadId"], None)
        if upload is None:
            raise Refused(404, "NoSuchUpload")
        content = b"".join(part for _, part in sorted(upload["parts"].items()))
        with lock:
            made = buckets[bucket][key] = Object(content, upload["metadata"], len(upload["parts"]))
        body = f"<?xml version='1.0'?><CompleteMultipartUploadResult {NAMESPACE}><ETag>{made.tag}</ETag></CompleteMultipartUploadResult>"
        self.answer(200, body.encode(), [("x-goog-generation", made.generation)])


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
