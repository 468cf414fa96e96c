#!/usr/bin/env python3
"""What no client library lets be seen, byte by byte, against a running broker: wire.py HOST:PORT"""

import socket
import struct
import sys
import uuid

HOST, PORT = sys.argv[1].rsplit(":", 1)
PRODUCE, FETCH, METADATA, CREATE_TOPICS = 0, 1, 3, 19
TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(value):
    value, out = value << 1 ^ value >> 63, b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def batch(value):
    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    record = varint(len(record)) + record
    covered = struct.pack(">hiqqqhii", 0, 0, 1, 1, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, crc32c(covered)) + covered


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


class Connection:
    def __init__(self):
        self.socket = socket.create_connection((HOST, int(PORT)), timeout=50)
        self.correlation = 0

    def send(self, api, version, body):
        self.correlation += 1
        data = struct.pack(">hhi", api, version, self.correlation) + text("wire") + body
        self.socket.sendall(struct.pack(">i", len(data)) + data)
        return self.correlation

    def receive(self, correlation):
        length = struct.unpack(">i", self.exactly(4))[0]
        data = self.exactly(length)
        assert struct.unpack(">i", data[:4])[0] == correlation, "answers out of order"
        return Reader(data[4:])

    def ask(self, api, version, body):
        return self.receive(self.send(api, version, body))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the connection ended"
            data += more
        return data


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, layout):
        values = struct.unpack_from(">" + layout, self.data, self.at)
        self.at += struct.calcsize(">" + layout)
        return values if len(values) > 1 else values[0]

    def text(self):
        return self.bytes(self.take("h")).decode()

    def bytes(self, count):
        self.at += max(count, 0)
        return self.data[self.at - max(count, 0) : self.at]


def new_topic(connection, partitions):
    name = "wire-" + uuid.uuid4().hex[:12]
    answer = connection.ask(CREATE_TOPICS, 1, struct.pack(">i", 1) + text(name) + struct.pack(">ihiii?", partitions, 1, 0, 0, 20_000, False))
    assert answer.take("i") == 1 and answer.text() == name and answer.take("h") == 0
    return name


def publish_body(topic, partition, records, acks=-1):
    return struct.pack(">hhii", -1, acks, 20_000, 1) + text(topic) + struct.pack(">iii", 1, partition, len(records)) + records


def published(answer):
    """Error and base offset of the one partition."""
    assert answer.take("i") == 1
    answer.text()
    assert answer.take("i") == 1
    _, error, offset = answer.take("ihq")
    return error, offset


def publish(connection, topic, partition, value):
    error, offset = published(connection.ask(PRODUCE, 7, publish_body(topic, partition, batch(value))))
    assert error == 0, error
    return offset


def fetch_body(topic, partitions, session=0, epoch=-1, wait=0, least=1, most=1 << 20, forgotten=()):
    body = struct.pack(">iiiibii", -1, wait, least, most, 0, session, epoch)
    body += struct.pack(">i", 1 if partitions else 0)
    if partitions:
        body += text(topic) + struct.pack(">i", len(partitions))
        body += b"".join(struct.pack(">iiqqi", partition, -1, offset, -1, 1 << 20) for partition, offset in partitions)
    body += struct.pack(">i", 1 if forgotten else 0)
    if forgotten:
        body += text(topic) + struct.pack(f">i{len(forgotten)}i", len(forgotten), *forgotten)
    return body + text("")


def fetched(answer):
    """Error, session and {partition: (error, bytes of records)}."""
    _, error, session, topics = answer.take("ihii")
    found = {}
    for _ in range(topics):
        answer.text()
        for _ in range(answer.take("i")):
            partition, code, _, _, _, aborted, replica, length = answer.take("ihqqqiii")
            assert aborted <= 0 and replica == -1
            found[partition] = (code, answer.bytes(length))
    return error, session, found


def fetch(connection, *arguments, **named):
    return fetched(connection.ask(FETCH, 11, fetch_body(*arguments, **named)))


def publishes_in_flight_keep_their_order():
    connection = Connection()
    topic = new_topic(connection, 1)
    sent = [connection.send(PRODUCE, 7, publish_body(topic, 0, batch(b"%d" % number))) for number in range(200)]
    assert [published(connection.receive(one)) for one in sent] == [(0, number) for number in range(200)]


def a_publish_without_acks_is_kept_and_not_answered():
    connection = Connection()
    topic = new_topic(connection, 1)
    connection.send(PRODUCE, 7, publish_body(topic, 0, batch(b"silent"), acks=0))
    assert publish(connection, topic, 0, b"answered") == 1


def message_sets_are_refused_by_name():
    connection = Connection()
    topic = new_topic(connection, 1)
    old = bytearray(batch(b"v"))
    old[16] = 1
    assert published(connection.ask(PRODUCE, 7, publish_body(topic, 0, bytes(old)))) == (43, -1)
    broken = bytearray(batch(b"v"))
    broken[-3] ^= 1
    assert published(connection.ask(PRODUCE, 7, publish_body(topic, 0, bytes(broken)))) == (2, -1)
    assert published(connection.ask(PRODUCE, 7, publish_body(topic, 0, b""))) == (87, -1)
    assert publish(connection, topic, 0, b"v") == 0


def a_session_tells_only_news():
    connection = Connection()
    topic = new_topic(connection, 3)
    error, session, found = fetch(connection, topic, [(0, 0), (1, 0), (2, 0)], epoch=0)
    assert error == 0 and session > 0 and set(found) == {0, 1, 2}
    assert fetch(connection, topic, [], session=session, epoch=1) == (0, session, {})
    publish(connection, topic, 1, b"news")
    error, _, found = fetch(connection, topic, [], session=session, epoch=2)
    assert error == 0 and set(found) == {1} and b"news" in found[1][1]
    # Moved past the news; another partition leaves.
    assert fetch(connection, topic, [(1, 1)], session=session, epoch=3, forgotten=[0]) == (0, session, {})
    publish(connection, topic, 0, b"forgotten")
    assert fetch(connection, topic, [], session=session, epoch=4) == (0, session, {})
    assert fetch(connection, topic, [], session=session, epoch=4)[0] == 71
    assert fetch(connection, topic, [], session=session + 1, epoch=5)[0] == 70
    assert fetch(Connection(), topic, [], session=session, epoch=5)[0] == 70
    # The end of a session, said.
    assert fetch(connection, topic, [(2, 0)], session=session, epoch=-1)[0] == 0
    assert fetch(connection, topic, [], session=session, epoch=5)[0] == 70


def a_waiting_fetch_hears_of_any_of_its_partitions():
    reader, writer = Connection(), Connection()
    topic = new_topic(writer, 8)
    for partition in range(8):
        offsets = [(number, 1 if number < partition else 0) for number in range(8)]
        asked = reader.send(FETCH, 11, fetch_body(topic, offsets, wait=40_000))
        publish(writer, topic, partition, b"v%d" % partition)
        _, _, found = fetched(reader.receive(asked))
        assert b"v%d" % partition in found[partition][1], found


def a_large_partition_does_not_starve_small_ones():
    connection = Connection()
    topic = new_topic(connection, 10)
    for _ in range(40):
        publish(connection, topic, 0, b"x" * 100_000)
    for partition in range(1, 10):
        publish(connection, topic, partition, b"small")
    offsets, advanced = [0] * 10, set()
    for _ in range(20):
        _, _, found = fetch(connection, topic, list(enumerate(offsets)), most=50_000)
        for partition, (error, records) in found.items():
            assert error == 0
            if records:
                advanced.add(partition)
                offsets[partition] += 1 if partition else max(1, len(records) // 100_000)
    assert advanced == set(range(10)), advanced


def offsets_outside_the_log_are_refused_at_once():
    connection = Connection()
    topic = new_topic(connection, 2)
    _, _, found = fetch(connection, topic, [(0, 7), (1, 0)], wait=40_000)
    assert found[0][0] == 1 and found[1][0] == 0
    assert fetch(connection, topic, [(9, 0)], wait=40_000)[2][9][0] == 3
    assert fetch(connection, topic + "x", [(0, 0)], wait=40_000)[2][0][0] == 3


CHECKS = [
    publishes_in_flight_keep_their_order,
    a_publish_without_acks_is_kept_and_not_answered,
    message_sets_are_refused_by_name,
    a_session_tells_only_news,
    a_waiting_fetch_hears_of_any_of_its_partitions,
    a_large_partition_does_not_starve_small_ones,
    offsets_outside_the_log_are_refused_at_once,
]

if __name__ == "__main__":
    wanted = sys.argv[2:]
    for check in CHECKS:
        if not wanted or check.__name__ in wanted:
            check()
            print("ok", check.__name__, flush=True)
