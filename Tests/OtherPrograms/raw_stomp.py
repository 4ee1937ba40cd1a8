#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client of STOMP without a library, on a socket: for tests of the brokers themselves.

    raw_stomp.py URL STEP...

The URL is stomp://, stomps://, ws:// or wss://, with the port; certificates are checked with the tests' authority. A STEP is
`send:TEXT`, whose NUL is appended, or `expect:TEXT`, which reads frames until one begins with TEXT and prints it, as JSON. In a
step \\n stands for a line end. Exit code 1 if the broker ends the connection, or is silent for 30 s.
"""

import base64
import json
import os
import pathlib
import socket
import ssl
import sys
import urllib.parse

AUTHORITY = pathlib.Path(__file__).resolve().parent.parent / "Certificates" / "authority.pem"


def connect(url):
    stream = socket.create_connection(("127.0.0.1", url.port), timeout=30)
    if url.scheme in ("stomps", "wss"):
        stream = ssl.create_default_context(cafile=AUTHORITY).wrap_socket(stream, server_hostname=url.hostname)
    return stream


class Plain:
    def __init__(self, url):
        self.stream = connect(url)
        self.buffer = b""

    def send(self, data):
        self.stream.sendall(data)

    def read(self):
        data = self.stream.recv(65536)
        if not data:
            sys.exit("the broker has closed the connection")
        return data


class WebSocket(Plain):
    def __init__(self, url):
        super().__init__(url)
        key = base64.b64encode(os.urandom(16)).decode()
        head = [
            f"GET {url.path} HTTP/1.1",
            f"Host: {url.netloc}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Protocol: v12.stomp",
        ]
        super().send(("\r\n".join(head) + "\r\n\r\n").encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += super().read()
        answer, self.rest = received.split(b"\r\n\r\n", 1)
        lines = answer.decode().lower().splitlines()
        if " 101 " not in lines[0] or "sec-websocket-protocol: v12.stomp" not in lines:
            sys.exit(f"the handshake failed: {answer}")

    def send(self, data):
        length = len(data)
        size = bytes([0x80 | length]) if length < 126 else bytes([0x80 | 126]) + length.to_bytes(2, "big")
        # A text message, whose mask is zero.
        super().send(b"\x81" + size + bytes(4) + data)

    def take(self, count):
        while len(self.rest) < count:
            self.rest += super().read()
        data, self.rest = self.rest[:count], self.rest[count:]
        return data

    def read(self):
        head = self.take(2)
        length = head[1] & 0x7F
        if length > 125:
            length = int.from_bytes(self.take(2 if length == 126 else 8), "big")
        payload = self.take(length)
        if head[0] & 0x0F == 8:
            sys.exit(f"the broker has closed the WebSocket: {payload}")
        return payload if head[0] & 0x0F < 8 else b""


def main():
    url = urllib.parse.urlsplit(sys.argv[1])
    client = (WebSocket if url.scheme in ("ws", "wss") else Plain)(url)
    received = b""
    for step in sys.argv[2:]:
        verb, text = step.replace("\\n", "\n").split(":", 1)
        if verb == "send":
            client.send(text.encode() + b"\0")
            continue
        while True:
            while b"\0" not in received:
                received += client.read()
            frame, received = received.split(b"\0", 1)
            frame = frame.lstrip(b"\r\n").decode()
            if frame.startswith(text):
                print(json.dumps(frame), flush=True)
                break


main()
