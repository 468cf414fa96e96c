"""Drives confluent-kafka (librdkafka). Commands print one JSON line; failures end with a traceback.

    librdkafka.py BROKER create TOPIC PARTITIONS
    librdkafka.py BROKER produce TOPIC CODEC COUNT PREFIX [--idempotent]
    librdkafka.py BROKER group TOPIC GROUP COUNT
    librdkafka.py BROKER seek TOPIC TIME_MS
    librdkafka.py BROKER large TOPIC BYTES
"""

import json
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_S = 60


def create(broker, topic, partitions):
    admin = AdminClient({"bootstrap.servers": broker})
    for future in admin.create_topics([NewTopic(topic, int(partitions), 1)]).values():
        future.result(PATIENCE_S)
    return {"created": topic}


def produce(broker, topic, codec, count, prefix, *options):
    """Keyed records with a stamp each, 1,000 ms apart."""
    producer = Producer({
        "bootstrap.servers": broker,
        "compression.type": codec,
        "enable.idempotence": "--idempotent" in options,
        "partitioner": "murmur2_random",
        "acks": "all",
        "linger.ms": 20,
    })
    failures = []
    places = []

    def delivered(error, message):
        if error is not None:
            failures.append(str(error))
        else:
            places.append([message.partition(), message.offset()])

    for number in range(int(count)):
        producer.produce(
            topic,
            key=f"{prefix}-key{number % 10}",
            value=f"{prefix}-{number} " + "x" * 100,
            headers={"number": str(number)},
            timestamp=1_700_000_000_000 + number * 1_000,
            on_delivery=delivered,
        )
        producer.poll(0)
    left = producer.flush(PATIENCE_S)
    assert left == 0 and not failures, (left, failures[:3])
    return {"places": sorted(places)}


def consumer_of(broker, group, **further):
    return Consumer({
        "bootstrap.servers": broker,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 10_000,
        **further,
    })


def group(broker, topic, group_id, count):
    """Two members share the partitions; one leaves, and the other goes on from what was committed."""
    count = int(count)
    lock = threading.Lock()
    read = {}
    repeats = []
    assigned = {"a": set(), "b": set()}
    stop = {"a": threading.Event(), "b": threading.Event()}
    failures = []

    def member(name):
        try:
            consumer = consumer_of(broker, group_id)

            def on_assign(_, partitions):
                with lock:
                    assigned[name] = {partition.partition for partition in partitions}

            def on_revoke(_, __):
                with lock:
                    assigned[name] = set()

            consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
            while not stop[name].is_set():
                message = consumer.poll(0.2)
                if message is None:
                    continue
                if message.error():
                    raise RuntimeError(message.error())
                place = (message.partition(), message.offset())
                with lock:
                    if place in read:
                        repeats.append(place)
                    read[place] = message.value().decode()
                consumer.commit(message=message, asynchronous=False)
            consumer.close()
        except Exception as error:  # told to the main thread
            failures.append(f"{name}: {error!r}")

    def wait(condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert not failures, failures
            assert time.monotonic() < deadline, (what, assigned, len(read))
            time.sleep(0.05)

    threads = {name: threading.Thread(target=member, args=(name,)) for name in "ab"}
    threads["a"].start()
    wait(lambda: len(assigned["a"]) > 1, "the first member alone has all")
    alone = len(assigned["a"])
    threads["b"].start()
    wait(lambda: assigned["a"] and assigned["b"], "both have a share")
    with lock:
        shares = [sorted(assigned["a"]), sorted(assigned["b"])]
    wait(lambda: len(read) >= count, "all records")
    stop["a"].set()
    threads["a"].join(PATIENCE_S)
    wait(lambda: len(assigned["b"]) == alone, "the one that stays has all")
    stop["b"].set()
    threads["b"].join(PATIENCE_S)
    assert not failures, failures
    return {"shares": shares, "count": len(read), "repeats": len(repeats), "values": sorted(read.values())}


def seek(broker, topic, time_ms):
    """The first value at or past a time in each partition."""
    consumer = consumer_of(broker, "seek-librdkafka")
    partitions = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
    wanted = [TopicPartition(topic, partition, int(time_ms)) for partition in partitions]
    found = consumer.offsets_for_times(wanted, PATIENCE_S)
    first = {}
    for place in found:
        assert place.error is None, place
        if place.offset < 0:
            continue
        consumer.assign([place])
        deadline = time.monotonic() + PATIENCE_S
        while place.partition not in first:
            assert time.monotonic() < deadline, place
            message = consumer.poll(1)
            if message is not None and not message.error():
                first[message.partition()] = [message.timestamp()[1], message.value().decode()]
    consumer.close()
    return {"first": first}


def large(broker, topic, length):
    """A record above the limit is refused by name, and the next one goes through."""
    producer = Producer({"bootstrap.servers": broker, "message.max.bytes": 10_000_000, "acks": "all"})
    outcomes = []
    for size in (int(length), 10):
        producer.produce(topic, value=b"x" * size, on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(PATIENCE_S) == 0
    refused, accepted = outcomes
    assert accepted is None, accepted
    assert refused is not None and refused.code() == KafkaError.MSG_SIZE_TOO_LARGE, refused
    return {"refused": str(refused)}


if __name__ == "__main__":
    _, address, command, *arguments = sys.argv
    print(json.dumps({"create": create, "produce": produce, "group": group, "seek": seek, "large": large}
                     [command](address, *arguments)))
