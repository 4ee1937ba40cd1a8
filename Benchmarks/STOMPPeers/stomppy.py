# SPDX-License-Identifier: Apache-2.0
"""The client of Benchmarks/Scripts/bench-stomp on PyPI's stomp.py. README.md describes its arguments and output."""

import json
import resource
import sys
import threading
import time
import urllib.parse

import stomp


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Client(stomp.ConnectionListener):
    def __init__(self, url, destination, count, warm_up, length, outstanding):
        self.destination, self.count, self.warm_up = destination, count, warm_up
        self.body, self.outstanding = "x" * length, outstanding
        self.room = threading.Semaphore(outstanding)
        self.done = threading.Event()
        self.seen = 0
        url = urllib.parse.urlsplit(url)
        hosts = [(url.hostname, url.port)]
        if url.scheme == "ws":
            self.connection = stomp.WSStompConnection(hosts, vhost="/", ws_path=url.path)
        else:
            self.connection = stomp.StompConnection12(hosts, vhost="/")
        self.connection.set_listener("", self)
        self.connection.connect("guest", "guest", wait=True)

    def start(self):
        self.started, self.cpu = time.monotonic(), cpu()

    def end(self):
        self.result = {"seconds": time.monotonic() - self.started, "cpu_s": cpu() - self.cpu}
        self.done.set()

    def on_error(self, frame):
        print(f"{frame.cmd} {frame.headers} {frame.body}", file=sys.stderr)

    # MARK: Sending

    def send(self):
        for number in range(self.warm_up + self.count):
            if number == self.warm_up:
                for _ in range(self.outstanding):
                    self.room.acquire()
                self.room.release(self.outstanding)
                self.start()
            self.room.acquire()
            self.connection.send(self.destination, self.body, receipt=str(number))

    # MARK: Receiving

    def receive(self):
        headers = {"prefetch-count": str(self.outstanding)}
        self.connection.subscribe(self.destination, id="0", ack="client-individual", headers=headers)

    def on_message(self, frame):
        self.seen += 1
        if self.seen == self.warm_up:
            self.start()
        if len(frame.body) != len(self.body):
            print(f"a body has {len(frame.body)} bytes", file=sys.stderr)
        last = self.seen == self.warm_up + self.count
        self.connection.ack(frame.headers["ack"], receipt="last" if last else None)

    def on_receipt(self, frame):
        if frame.headers["receipt-id"] == "last" or frame.headers["receipt-id"] == str(self.warm_up + self.count - 1):
            self.end()
        self.room.release()


def main():
    verb, url, destination, *numbers = sys.argv[1:]
    client = Client(url, destination, *map(int, numbers))
    getattr(client, verb)()
    if not client.done.wait(300):
        sys.exit("the last receipt has not come")
    print(json.dumps(client.result), flush=True)
    client.connection.disconnect()


main()
