"""Web servers that are not ours, with a directory of files.

    python web.py FORM DIRECTORY [PORT]     serves until it is ended

FORM is one of `FORMS`. Each server runs in the foreground as a child of this process.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The lines of each form of nginx within `location /`.
NGINX = {
    "nginx-json": "autoindex on; autoindex_format json;",
    "nginx-html": "autoindex on;",
    # It does not list. A directory is 403, a missing file 404.
    "nginx-none": "",
    # It does not send ranges.
    "nginx-whole": "autoindex on; autoindex_format json; max_ranges 0;",
    # As a bucket at an https URL: it lists nothing, and refuses what is missing.
    "nginx-hidden": "error_page 404 = @refused;",
    # As a web application: each name that is not there is its page.
    "nginx-page": "try_files $uri /index.html;",
    "nginx-gzip": "autoindex on; gunzip off; gzip_static always;",
}

APACHE = {
    "apache": "Options +Indexes",
    "apache-fancy": "Options +Indexes\nIndexOptions FancyIndexing HTMLTable NameWidth=8",
    "apache-dav": "Options -Indexes\nDav On",
}

FORMS = [*NGINX, *APACHE, "lighttpd", "python", "caddy"]


def free_port():
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


def nginx(form, root, port, work, more=""):
    config = work / "nginx.conf"
    refused = "location @refused { return 403; }" if form == "nginx-hidden" else ""
    config.write_text(f"""
        daemon off;
        master_process off;
        pid {work}/nginx.pid;
        error_log {work}/error.log;
        events {{ worker_connections 512; }}
        http {{
            access_log off;
            client_body_temp_path {work}/body;
            proxy_temp_path {work}/proxy;
            fastcgi_temp_path {work}/fastcgi;
            uwsgi_temp_path {work}/uwsgi;
            scgi_temp_path {work}/scgi;
            types {{ application/json json; text/html html; }}
            server {{
                listen 127.0.0.1:{port};
                root {root};
                keepalive_requests 100000;
                location / {{ {NGINX[form]} }}
                {refused}
                {more}
            }}
        }}
    """)
    return ["nginx", "-e", f"{work}/error.log", "-c", str(config)]


def apache(form, root, port, work):
    config = work / "apache.conf"
    names = ["mpm_event", "authz_core", "dir", "autoindex", "alias", "mime", "env", "authn_core", "dav", "dav_fs"]
    modules = "\n".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in names)
    config.write_text(f"""
        {modules}
        ServerName 127.0.0.1
        Listen 127.0.0.1:{port}
        PidFile {work}/apache.pid
        ErrorLog {work}/error.log
        DavLockDB {work}/dav.lock
        DocumentRoot {root}
        TypesConfig /etc/mime.types
        KeepAlive On
        MaxKeepAliveRequests 0
        <Directory {root}>
            Require all granted
            {APACHE[form]}
        </Directory>
    """)
    # Apache does not serve as root. As another user it gets to the files of root by these capabilities.
    rights = "+dac_override,+dac_read_search"
    user = ["--reuid=www-data", "--regid=www-data", "--clear-groups", f"--inh-caps={rights}", f"--ambient-caps={rights}"]
    prefix = ["setpriv", *user] if os.getuid() == 0 else []
    return [*prefix, "apache2", "-X", "-d", str(work), "-f", str(config)]


def lighttpd(root, port, work):
    config = work / "lighttpd.conf"
    config.write_text(f"""
        server.document-root = "{root}"
        server.bind = "127.0.0.1"
        server.port = {port}
        server.modules = ("mod_dirlisting")
        dir-listing.activate = "enable"
        mimetype.assign = (".json" => "application/json", "" => "application/octet-stream")
    """)
    return ["lighttpd", "-D", "-f", str(config)]


def command(form, root, port, work):
    if form in NGINX:
        return nginx(form, root, port, work)
    if form in APACHE:
        return apache(form, root, port, work)
    if form == "lighttpd":
        return lighttpd(root, port, work)
    if form == "caddy":
        return ["caddy", "file-server", "--browse", "--root", str(root), "--listen", f"127.0.0.1:{port}"]
    return [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "-d", str(root), str(port)]


@contextlib.contextmanager
def serving(form, root, port=None):
    """Serves a directory, and returns the URL."""
    work = Path(tempfile.mkdtemp(prefix="zarrfs-web."))
    port = port or free_port()
    with open(work / "log", "wb") as log:
        process = subprocess.Popen(command(form, root, port, work), stdout=log, stderr=log, cwd=work)
    try:
        for _ in range(2400):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, (work / "log").read_text() + (work / "error.log").read_text()
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(work, ignore_errors=True)


def main():
    form, root = sys.argv[1:3]
    port = int(sys.argv[3]) if len(sys.argv) > 3 else None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with serving(form, Path(root).resolve(), port) as url, contextlib.suppress(KeyboardInterrupt):
        print(url, flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
