# SPDX-License-Identifier: Apache-2.0
"""Reads messages and writes them again, with Python's protobuf.

On standard input: the length of a descriptor set (4 bytes, big-endian) and the set; then, again and again, the length of a
message's full name and the name, the length of the message and the message. On standard output, for each: the length of what
protobuf writes and that; or 0xFFFFFFFF and, with its length, why the message could not be read.
"""

import struct
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory


def piece():
    header = sys.stdin.buffer.read(4)
    if len(header) < 4:
        return None
    return sys.stdin.buffer.read(struct.unpack(">I", header)[0])


def answer(data):
    sys.stdout.buffer.write(struct.pack(">I", len(data)) + data)


def without_defaults(messages):
    """They are not on the wire, and Python's protobuf does not know every number that Swift does."""
    for declared in messages:
        for field in declared.field:
            field.ClearField("default_value")
        without_defaults(declared.nested_type)


pool = descriptor_pool.DescriptorPool()
for file in descriptor_pb2.FileDescriptorSet.FromString(piece()).file:
    if file.name.startswith("errors/"):
        continue  # The bytes are wrong on purpose.
    without_defaults(file.message_type)
    pool.AddSerializedFile(file.SerializeToString())
classes = {}
while (name := piece()) is not None:
    data = piece()
    if name not in classes:
        classes[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name.decode()))
    try:
        answer(classes[name].FromString(data).SerializeToString(deterministic=True))
    except (message.DecodeError, message.EncodeError) as error:
        sys.stdout.buffer.write(struct.pack(">I", 0xFFFFFFFF))
        answer(str(error).encode())
