"""Engines that answer from a capture, one port each: `python -m benchmarks.fixed_engines COUNT`."""

import asyncio
import json
import sys
from pathlib import Path

CAPTURE = Path(__file__).parents[1] / "tests/captures/v0.32.0__unique-then-shared-traffic__kv-metrics-on.prom"
PORT_LINE = "ports "


def _reply(body: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    )


ANSWERS = {
    b"/metrics": _reply(CAPTURE.read_bytes()),
    b"/health": _reply(b""),
    b"/version": _reply(b'{"version":"0.32.0"}'),
}


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    request = await reader.readuntil(b"\r\n\r\n")
    writer.write(ANSWERS[request.split(b" ", 2)[1]])
    await writer.drain()
    writer.close()


async def _main(count: int) -> None:
    servers = [await asyncio.start_server(_answer, "127.0.0.1", 0) for _ in range(count)]
    print(PORT_LINE + json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
