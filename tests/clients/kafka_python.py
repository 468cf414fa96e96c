#!/usr/bin/env python3
"""What programs on kafka-python rely on, against a running broker: kafka_python.py HOST:PORT"""

import sys
import uuid

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

BOOTSTRAP = sys.argv[1]
admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
topic = "py-" + uuid.uuid4().hex[:12]
group = "py-" + uuid.uuid4().hex[:12]
admin.create_topics([NewTopic(name=topic, num_partitions=3, replication_factor=1)])

sent = {b"%d" % number: b"value %d" % number for number in range(3_000)}
for codec in [None, "gzip"]:
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", linger_ms=5, compression_type=codec)
    futures = [producer.send(topic, value, key) for key, value in list(sent.items())[0 if codec is None else 1_500 :: 1][:1_500]]
    producer.flush()
    offsets = [future.get(30).offset for future in futures]
    assert min(offsets) >= 0
    producer.close()

consumer = KafkaConsumer(topic, bootstrap_servers=BOOTSTRAP, group_id=group, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
seen = {}
for message in consumer:
    seen[message.key] = message.value
    if len(seen) == len(sent):
        break
assert seen == sent, f"{len(seen)} of {len(sent)}"
consumer.commit()
partitions = [TopicPartition(topic, partition) for partition in range(3)]
ends = consumer.end_offsets(partitions)
assert sum(ends.values()) == 3_000, ends
assert {partition: consumer.committed(partition) for partition in partitions} == ends
assert sum(consumer.beginning_offsets(partitions).values()) == 0
consumer.close()
assert group in [str(listed.get("group_id", listed) if isinstance(listed, dict) else listed[0]) for listed in admin.list_groups()] if hasattr(admin, "list_groups") else True
admin.delete_topics([topic])
print("ok kafka_python")
