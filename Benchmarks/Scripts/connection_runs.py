# SPDX-License-Identifier: Apache-2.0
"""The parts that the measurements of many connections share."""

import resource

HEARTBEAT = bytes.fromhex("00000000" "00000000" "00000000" "00000001")
ANSWER = bytes.fromhex("00000000" "00000000" "000000C8" "00000000" "00000001")
# The number of connections from one address: a server accepts 1,000 at once, and half of its connections.
PER_ADDRESS = 800


def address(index):
    """The address of 127.0.0.0/8 from which the connection of this number comes."""
    number = index // PER_ADDRESS
    return f"127.0.{number // 250}.{1 + number % 250}"


def raise_limit(wanted):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
