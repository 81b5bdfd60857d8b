"""GET over plain HTTP. Unlike urllib it heeds no proxy variables and follows no redirects."""

import http.client
from typing import Final, NamedTuple
from urllib.parse import urlsplit

FAILURES: Final = (OSError, http.client.HTTPException)


class Answer(NamedTuple):
    """Status and text of an answer."""

    status: int
    text: str


def get(url: str, timeout: float = 2.0) -> Answer:
    """Return the answer within `timeout` seconds for each read; raises one of FAILURES."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        connection.request("GET", f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}")
        response = connection.getresponse()
        return Answer(response.status, response.read().decode(errors="replace"))
    finally:
        connection.close()


def is_healthy(url: str) -> bool:
    """Whether the page answers 200."""
    try:
        return get(url).status == http.HTTPStatus.OK
    except FAILURES:
        return False
