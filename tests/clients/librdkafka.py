#!/usr/bin/env python3
"""What programs on librdkafka rely on, against a running broker: librdkafka.py HOST:PORT"""

import sys
import threading
import time
import uuid

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

BOOTSTRAP = sys.argv[1]
admin = AdminClient({"bootstrap.servers": BOOTSTRAP})


def new_topic(partitions=1, config=None):
    name = "rd-" + uuid.uuid4().hex[:12]
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
    admin.create_topics([topic])[name].result(30)
    return name


def publish(topic, messages, **settings):
    """Publishes (partition, key, value) and gives the offsets, each with its error."""
    delivered = []
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "linger.ms": 5, **settings})
    for partition, key, value in messages:
        while True:
            try:
                report = lambda error, message: delivered.append((error, message.partition(), message.offset()))
                producer.produce(topic, value, key, partition=partition, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0, "publishes without an answer"
    return delivered


def read(topic, partitions, count, **settings):
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "read-" + uuid.uuid4().hex, "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    messages, end = [], time.time() + 60
    while len(messages) < count and time.time() < end:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            messages.append(message)
    consumer.close()
    assert len(messages) == count, f"{len(messages)} of {count} messages of {topic}"
    return messages


def every_codec_comes_back_byte_for_byte():
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"]:
        topic = new_topic()
        values = [f"{codec} {number} ".encode() * 50 for number in range(300)]
        delivered = publish(topic, [(0, b"k%d" % number, value) for number, value in enumerate(values)], **{"compression.type": codec})
        assert all(error is None for error, _, _ in delivered), delivered[0]
        assert sorted(offset for _, _, offset in delivered) == list(range(300))
        assert [message.value() for message in read(topic, [0], 300)] == values, codec


def an_idempotent_producer_keeps_order_with_many_in_flight():
    topic = new_topic(4)
    messages = [(number % 4, b"%d" % number, b"x" * 900) for number in range(20_000)]
    delivered = publish(topic, messages, **{"enable.idempotence": True, "max.in.flight.requests.per.connection": 5, "batch.num.messages": 50})
    assert all(error is None for error, _, _ in delivered)
    last = {}
    for message in read(topic, range(4), 20_000):
        number = int(message.key())
        assert last.get(message.partition(), -1) < number, "out of order"
        last[message.partition()] = number
    assert set(last.values()) == {19_996, 19_997, 19_998, 19_999}


def an_oversize_record_is_refused_and_others_are_kept():
    topic = new_topic()
    [(error, _, _)] = publish(topic, [(0, None, b"x" * 500_000)])
    assert error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE, error
    [(error, _, offset)] = publish(topic, [(0, None, b"small")])
    assert error is None and offset == 0


def a_group_of_two_shares_and_hands_over():
    topic = new_topic(6)
    group = "pair-" + uuid.uuid4().hex[:8]
    total = 6_000
    seen, lock, stop = [], threading.Lock(), [threading.Event(), threading.Event()]

    def member(index):
        consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "client.id": f"member-{index}"})
        consumer.subscribe([topic])
        while not stop[index].is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                with lock:
                    seen.append((index, message.key()))
        consumer.close()

    members = [threading.Thread(target=member, args=(index,)) for index in range(2)]
    members[0].start()
    time.sleep(1)
    members[1].start()
    end = time.time() + 30
    while time.time() < end:
        described = admin.describe_consumer_groups([group])[group].result(10)
        if len(described.members) == 2 and all(member.assignment.topic_partitions for member in described.members):
            break
        time.sleep(0.2)
    assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [3, 3], described.members
    half = [(number % 6, b"%d" % number, b"v") for number in range(total)]
    publish(topic, half[: total // 2])
    wait(lambda: len({key for _, key in seen}) == total // 2)
    assert {index for index, _ in seen} == {0, 1}, "one member read everything"
    stop[0].set()
    members[0].join()
    publish(topic, half[total // 2 :])
    wait(lambda: len({key for _, key in seen}) == total)
    stop[1].set()
    members[1].join()
    # Offsets were committed at the close: nothing is left to read.
    committed = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group}).committed([TopicPartition(topic, partition) for partition in range(6)], 10)
    assert [position.offset for position in committed] == [total // 6] * 6, committed
    assert group in [listed.group_id for listed in admin.list_consumer_groups().result(10).valid]
    admin.delete_consumer_groups([group])[group].result(10)


def wait(is_done):
    end = time.time() + 60
    while not is_done():
        assert time.time() < end, "waited in vain"
        time.sleep(0.05)


def offsets_are_found_by_name_and_time():
    topic = new_topic()
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(100):
        producer.produce(topic, b"v", timestamp=1_700_000_000_000 + number * 10, partition=0)
        if number % 10 == 9:
            producer.flush()
    partition = TopicPartition(topic, 0)

    def offset_of(spec):
        return admin.list_offsets({partition: spec})[partition].result(10).offset

    assert offset_of(OffsetSpec.earliest()) == 0
    assert offset_of(OffsetSpec.latest()) == 100
    assert offset_of(OffsetSpec.max_timestamp()) == 99
    assert offset_of(OffsetSpec.for_timestamp(1_700_000_000_000 + 505)) == 51
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "times"})
    assert consumer.get_watermark_offsets(partition, 10) == (0, 100)
    [found] = consumer.offsets_for_times([TopicPartition(topic, 0, 1_900_000_000_000)], 10)
    assert found.offset in (-1, 100), found


def an_unknown_group_has_no_offsets_and_no_error():
    topic = new_topic()
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "never-" + uuid.uuid4().hex})
    [position] = consumer.committed([TopicPartition(topic, 0)], 10)
    assert position.error is None and position.offset < 0, position


def topics_are_described_and_deleted():
    topic = new_topic(3, {"retention.ms": "86400000"})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    settings = admin.describe_configs([resource])[resource].result(10)
    assert settings["retention.ms"].value == "86400000"
    assert len(admin.list_topics(topic, 10).topics[topic].partitions) == 3
    for bad, code in [(NewTopic("a b", 1, 1), KafkaError.TOPIC_EXCEPTION), (NewTopic(topic, 1, 1), KafkaError.TOPIC_ALREADY_EXISTS), (NewTopic(topic + "x", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG), (NewTopic(topic + "x", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR)]:
        try:
            admin.create_topics([bad])[bad.topic].result(10)
            raise AssertionError(f"{bad} was made")
        except KafkaException as refused:
            assert refused.args[0].code() == code, refused
    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics
    try:
        admin.delete_topics([topic])[topic].result(10)
        raise AssertionError("deleted twice")
    except KafkaException as refused:
        assert refused.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def a_large_backlog_is_read_whole():
    topic = new_topic(2)
    value = bytes(range(256)) * 780
    publish(topic, [(number % 2, b"%d" % number, value) for number in range(400)])
    messages = read(topic, [0, 1], 400, **{"fetch.max.bytes": 20_000_000, "max.partition.fetch.bytes": 10_000_000})
    assert all(message.value() == value for message in messages)


def an_offset_past_the_end_is_out_of_range():
    topic = new_topic()
    publish(topic, [(0, None, b"v")])
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "beyond", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 50)])
    end = time.time() + 20
    while time.time() < end:
        message = consumer.poll(0.5)
        if message is not None and message.error() is not None:
            assert message.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE), message.error()
            break
    else:
        raise AssertionError("no error")
    consumer.close()


def a_transactional_producer_is_refused_for_good():
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": "t"})
    try:
        producer.init_transactions(10)
        raise AssertionError("a transaction began")
    except KafkaException as refused:
        assert not refused.args[0].retriable(), refused


CHECKS = [
    topics_are_described_and_deleted,
    every_codec_comes_back_byte_for_byte,
    an_oversize_record_is_refused_and_others_are_kept,
    offsets_are_found_by_name_and_time,
    an_offset_past_the_end_is_out_of_range,
    an_unknown_group_has_no_offsets_and_no_error,
    a_transactional_producer_is_refused_for_good,
    a_large_backlog_is_read_whole,
    an_idempotent_producer_keeps_order_with_many_in_flight,
    a_group_of_two_shares_and_hands_over,
]

if __name__ == "__main__":
    wanted = sys.argv[2:]
    for check in CHECKS:
        if not wanted or check.__name__ in wanted:
            check()
            print("ok", check.__name__, flush=True)
