"""The commands of docs/s3.md, on a real server."""

import servers
from test_docs_commands import check


def test_the_commands_of_the_page_print_what_it_shows(tmp_path, prefix):
    names = [("s3://bucket", f"s3://{servers.BUCKET}/{prefix}"), ("http://localhost:8333", servers.SERVER)]
    check("docs/s3.md", tmp_path, names)
