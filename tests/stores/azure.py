"""Creates a container in a server of Azure Blob Storage.

    python azure.py URL CONTAINER

The account and its key are AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_ACCOUNT_KEY.
https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
"""

import base64
import hashlib
import hmac
import os
import sys
import urllib.request
from email.utils import formatdate


def create(server, container):
    account, key = os.environ["AZURE_STORAGE_ACCOUNT"], os.environ["AZURE_STORAGE_ACCOUNT_KEY"]
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    canonical = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    resource = f"/{account}/{account}/{container}\nrestype:container"
    signed = "PUT" + "\n" * 12 + canonical + resource
    digest = hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(digest).decode()}"
    headers["Content-Length"] = "0"
    url = f"{server}/{account}/{container}?restype=container"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=120) as answer:
        assert answer.status == 201


if __name__ == "__main__":
    create(*sys.argv[1:])
