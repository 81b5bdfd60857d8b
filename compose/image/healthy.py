"""Exit 0 if a page of this container answers 200: healthy.py PORT PATH. It runs often, so it imports little."""  # noqa: INP001

import socket
import sys

port, path = sys.argv[1:]
with socket.create_connection(("127.0.0.1", int(port)), timeout=4) as connection:
    connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    status = connection.recv(32).split()[1:2]
sys.exit(status != [b"200"])
