#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A cable between two network namespaces that treats packets as badly as it is told, for tests.

bad_link.py PID ADDRESS PID ADDRESS: the namespaces of these processes, and the address of each end. Prints "ready", and then
does what the lines of its standard input say: "loss PERCENT", "delay MILLISECONDS JITTER", "down" and "up". Packets keep their
order. It ends with its standard input.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

CLONE_NEWNET, TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x40000000, 0x400454CA, 0x0001, 0x1000
libc = ctypes.CDLL(None, use_errno=True)


def enter(path):
    handle = os.open(path, os.O_RDONLY)
    if libc.setns(handle, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns " + path)
    os.close(handle)


def end_of_cable(pid, address, other):
    """Creates a TUN device in the namespace of a process. The result reads the packets that the kernel sends."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    enter("/proc/%s/ns/net" % pid)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", b"cable", IFF_TUN | IFF_NO_PI))
    for command in (["address", "add", address, "peer", other, "dev", "cable"], ["link", "set", "cable", "up"]):
        subprocess.run(["ip"] + command, check=True)
    libc.setns(home, CLONE_NEWNET)
    return device


def main():
    left = end_of_cable(sys.argv[1], sys.argv[2], sys.argv[4])
    right = end_of_cable(sys.argv[3], sys.argv[4], sys.argv[2])
    other, latest = {left: right, right: left}, {left: 0.0, right: 0.0}
    loss, delay, jitter, is_up = 0.0, 0.0, 0.0, True
    chance = random.Random(1)
    waiting = []  # a heap of time, number, destination, packet
    count = 0
    print("ready", flush=True)
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for source in select.select([left, right, sys.stdin], [], [], timeout)[0]:
            if source is sys.stdin:
                words = sys.stdin.readline().split()
                if not words:
                    return
                if words[0] == "loss":
                    loss = float(words[1])
                elif words[0] == "delay":
                    delay, jitter = float(words[1]) / 1000, float(words[2]) / 1000
                else:
                    is_up = words[0] == "up"
                print("done", flush=True)
                continue
            packet = os.read(source, 65536)
            if not is_up or chance.random() * 100 < loss:
                continue
            when = max(latest[source], time.monotonic() + delay + chance.uniform(-jitter, jitter))
            latest[source] = when
            count += 1
            heapq.heappush(waiting, (when, count, other[source], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(waiting)
            try:
                os.write(target, packet)
            except OSError:
                pass  # Lost, as on any network.


main()
