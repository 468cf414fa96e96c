"""Drives kafka-python. Commands print one JSON line; failures end with a traceback.

    kafka_python.py BROKER create TOPIC PARTITIONS
    kafka_python.py BROKER produce TOPIC CODEC COUNT PREFIX
    kafka_python.py BROKER read TOPIC COUNT
    kafka_python.py BROKER group TOPIC GROUP COUNT
"""

import json
import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

PATIENCE_S = 60


def create(broker, topic, partitions):
    admin = KafkaAdminClient(bootstrap_servers=broker)
    admin.create_topics([NewTopic(topic, int(partitions), 1)])
    admin.close()
    return {"created": topic}


def produce(broker, topic, codec, count, prefix):
    producer = KafkaProducer(
        bootstrap_servers=broker,
        compression_type=None if codec == "none" else codec,
        acks="all",
        linger_ms=20,
    )
    sent = [
        producer.send(
            topic,
            key=f"{prefix}-key{number % 10}".encode(),
            value=f"{prefix}-{number} ".encode() + b"x" * 100,
            timestamp_ms=1_700_000_000_000 + number * 1_000,
        )
        for number in range(int(count))
    ]
    producer.flush(PATIENCE_S)
    places = sorted([one.get(PATIENCE_S).partition, one.get(PATIENCE_S).offset] for one in sent)
    producer.close()
    return {"places": places}


def records(consumer, count):
    found = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        for batch in consumer.poll(timeout_ms=500).values():
            found.extend(batch)
    return found


def read(broker, topic, count):
    """Without a group, from the start."""
    consumer = KafkaConsumer(topic, bootstrap_servers=broker, auto_offset_reset="earliest")
    found = records(consumer, int(count))
    consumer.close()
    return {"records": [[one.partition, one.offset, (one.key or b"").decode(), one.value.decode()] for one in found]}


def group(broker, topic, group_id, count):
    """Reads half in a group, commits, and a second consumer of it reads the rest."""
    count = int(count)
    values = []
    for share in (count // 2, count):
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker,
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=10,
        )
        while len(values) < share:
            before = len(values)
            values.extend(one.value.decode() for one in records(consumer, 1))
            assert len(values) > before, (len(values), count)
            consumer.commit()
        consumer.close()
    return {"count": len(values), "values": sorted(values)}


if __name__ == "__main__":
    _, address, command, *arguments = sys.argv
    print(json.dumps({"create": create, "produce": produce, "read": read, "group": group}[command](address, *arguments)))
