# SPDX-License-Identifier: Apache-2.0
"""A client of Benchmarks/Scripts/bench-stomp that only reads and writes: its frames are encoded before the measurement, and of those that it
receives it counts the NULs or copies what follows "ack:". It shows how fast the broker is. Over TCP alone."""

import json
import re
import resource
import socket
import sys
import time
import urllib.parse

ACK = re.compile(rb"\nack:([^\n]*)\n")


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Client:
    def __init__(self, url, destination, count, warm_up, length, outstanding):
        self.destination, self.length, self.outstanding = destination, length, outstanding
        self.count, self.warm_up = count, warm_up
        url = urllib.parse.urlsplit(url)
        self.stream = socket.create_connection((url.hostname, url.port), timeout=60)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")
        while not self.read().endswith(b"\0\n"):
            pass

    def read(self):
        data = self.stream.recv(1 << 18)
        if not data or b"ERROR\n" in data:
            sys.exit(f"the broker has ended the connection: {data}")
        return data

    def send(self):
        head = f"SEND\ndestination:{self.destination}\nreceipt:1\ncontent-length:{self.length}\n\n"
        frame = head.encode() + b"x" * self.length + b"\0"
        frames = [frame * number for number in range(self.outstanding + 1)]
        for total in (self.warm_up, self.count):
            started, before = time.monotonic(), cpu()
            sent = confirmed = 0
            while confirmed < total:
                number = min(self.outstanding - (sent - confirmed), total - sent)
                self.stream.sendall(frames[number])
                sent += number
                confirmed += self.read().count(b"\0")
        return time.monotonic() - started, cpu() - before

    def receive(self):
        head = f"SUBSCRIBE\nid:0\nack:client-individual\nprefetch-count:{self.outstanding}\n"
        self.stream.sendall(f"{head}destination:{self.destination}\n\n\0".encode())
        seen, rest, started = 0, b"", None
        while seen < self.warm_up + self.count:
            whole, _, rest = (rest + self.read()).rpartition(b"\0")
            found = ACK.findall(whole)
            seen += len(found)
            if started is None and seen >= self.warm_up:
                started, before, first = time.monotonic(), cpu(), seen
            if found:
                self.stream.sendall(b"".join(b"ACK\nid:%b\n\n\0" % id for id in found))
        self.stream.sendall(b"UNSUBSCRIBE\nid:0\nreceipt:1\n\n\0")
        while b"RECEIPT" not in self.read():
            pass
        # The clock starts with the read that contains the last message of the warm-up, and maybe more messages.
        scale = self.count / (seen - first)
        return (time.monotonic() - started) * scale, (cpu() - before) * scale


def main():
    verb, url, destination, *numbers = sys.argv[1:]
    seconds, cpu_seconds = getattr(Client(url, destination, *map(int, numbers)), verb)()
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_seconds}))


main()
