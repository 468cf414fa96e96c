#!/usr/bin/env python3
"""Bytes that no client sends end their own connection and nobody else's: hostile_bytes.py HOST:PORT"""

import random
import socket
import struct
import sys

HOST, PORT = sys.argv[1].rsplit(":", 1)


def connect():
    return socket.create_connection((HOST, int(PORT)), timeout=20)


def ask(connection, api, version, body, correlation=7, flexible=False):
    header = struct.pack(">hhih", api, version, correlation, 1) + b"c" + (b"\0" if flexible else b"")
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    return answer(connection)


def answer(connection):
    """A frame, or None where the connection ended."""
    try:
        prefix = receive(connection, 4)
        return prefix and receive(connection, struct.unpack(">i", prefix)[0])
    except ConnectionResetError:
        return None


def receive(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            return None
        data += more
    return data


def is_served(connection):
    """ApiVersions 0 on this connection."""
    frame = ask(connection, 18, 0, b"")
    return frame is not None and frame[4:6] == b"\0\0"


def the_connection_ends(data, why):
    connection = connect()
    connection.sendall(data)
    assert answer(connection) is None, why
    connection.close()


bystander = connect()
assert is_served(bystander)

frame = lambda data: struct.pack(">i", len(data)) + data
header = lambda api, version: struct.pack(">hhih", api, version, 1, 1) + b"c"
the_connection_ends(struct.pack(">i", -1), "a negative length")
the_connection_ends(struct.pack(">i", 2_000_000_000), "an oversize length")
the_connection_ends(frame(b""), "an empty frame")
the_connection_ends(frame(b"\0"), "half a header")
the_connection_ends(frame(header(999, 0)), "an unknown call")
the_connection_ends(frame(header(3, 99)), "an unknown version")
the_connection_ends(frame(header(17, 1) + b"\0\5PLAIN"), "a call that is not served")
the_connection_ends(frame(header(3, 4) + struct.pack(">i", 2_000_000_000)), "an array that cannot be")
the_connection_ends(frame(header(0, 7) + b"\xff" * 40), "a publish that cannot be read")
the_connection_ends(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "another protocol")

# A version of ApiVersions that is not built is answered, in version 0, with what is served.
connection = connect()
unsupported = ask(connection, 18, 77, b"")
assert unsupported[4:6] == struct.pack(">h", 35), unsupported
assert is_served(connection)
connection.close()

# acks that mean nothing are refused; without acks the connection is the only way to say so.
publish = lambda acks: struct.pack(">hhi", -1, acks, 1000) + struct.pack(">i", 1) + b"\0\4nope" + struct.pack(">iii", 1, 0, 0)
connection = connect()
refused = ask(connection, 0, 7, publish(5))
assert struct.pack(">h", 21) in refused, refused
connection.close()
connection = connect()
assert ask(connection, 0, 7, publish(0)) is None
connection.close()

# Half a frame, held.
holders = [connect() for _ in range(20)]
for holder in holders:
    holder.sendall(struct.pack(">i", 1_000_000) + b"x" * 1000)

chance = random.Random(5)
for _ in range(300):
    connection = connect()
    data = chance.randbytes(chance.randrange(1, 200))
    if chance.random() < 0.7:
        data = frame(struct.pack(">hh", chance.choice([0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 19, 20, 22, 32]), chance.randrange(0, 14)) + data)
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    answer(connection)
    connection.close()

assert is_served(bystander), "somebody else's bytes ended this connection"
print("ok hostile_bytes")
