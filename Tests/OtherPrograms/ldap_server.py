# SPDX-License-Identifier: Apache-2.0
"""A directory of one entry per name, in LDAP (RFC 4511), for tests: it binds cn=admin with the password secret.

It says `listening on HOST:PORT`, and ends by SIGTERM.
"""

import signal
import socketserver
import sys

BIND, UNBIND, SEARCH = 0x60, 0x42, 0x63


def element(tag, contents, wide=False):
    length = len(contents)
    if wide:  # like Active Directory
        return bytes([tag, 0x84]) + length.to_bytes(4, "big") + contents
    if length < 0x80:
        return bytes([tag, length]) + contents
    octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(octets)]) + octets + contents


def read_element(read):
    tag = read(1)[0]
    length = read(1)[0]
    if length >= 0x80:
        length = int.from_bytes(read(length & 0x7F), "big")
    return tag, read(length)


def elements(contents):
    position = 0

    def read(count):
        nonlocal position
        piece = contents[position:position + count]
        position += count
        return piece

    while position < len(contents):
        yield read_element(read)


def message(serial, tag, contents, wide=False):
    # Room for the sign.
    octets = serial.to_bytes(serial.bit_length() // 8 + 1, "big")
    return element(0x30, element(0x02, octets) + element(tag, contents, wide), wide)


def result(code):
    return element(0x0A, bytes([code])) + element(0x04, b"") + element(0x04, b"")


def entry(name):
    values = {b"cn": name.removeprefix(b"cn=").capitalize(), b"description": b"somebody, " * 30}
    attributes = b"".join(
        element(0x30, element(0x04, key) + element(0x31, element(0x04, value))) for key, value in values.items())
    return element(0x04, name) + element(0x30, attributes)


class Session(socketserver.StreamRequestHandler):
    def read(self, count):
        piece = self.rfile.read(count)
        if len(piece) < count:
            raise EOFError
        return piece

    def handle(self):
        try:
            while True:
                (_, serial), (tag, contents) = list(elements(read_element(self.read)[1]))[:2]
                if tag == UNBIND:
                    return
                self.answer(int.from_bytes(serial, "big"), tag, list(elements(contents)))
        except (EOFError, IndexError, ConnectionError):
            pass

    def answer(self, serial, tag, fields):
        if tag == BIND:
            accepted = fields[1][1] == b"cn=admin" and fields[2] == (0x80, b"secret")
            self.wfile.write(message(serial, 0x61, result(0 if accepted else 49)))
        elif tag == SEARCH:
            name = fields[0][1]
            out = b""
            if name == b"cn=notice":
                out += message(0, 0x78, result(52) + element(0x8A, b"1.3.6.1.4.1.1466.20036"))
            out += message(serial, 0x64, entry(name), wide=name == b"cn=alice") + message(serial, 0x65, result(0))
            self.wfile.write(out)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with Server(("127.0.0.1", 0), Session) as server:
    print("listening on %s:%d" % server.server_address, flush=True)
    server.serve_forever()
