"""Testcontainers for Python with the image in Kafka's place. Argument: the image."""
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from testcontainers.kafka import KafkaContainer

image = sys.argv[1]
failed = False


def messages_pass(bootstrap):
    """As in Testcontainers' own test: produce, read back from the start."""
    topic = "test-topic"
    producer = KafkaProducer(bootstrap_servers=[bootstrap])
    producer.send(topic, b"verification message").get(timeout=10)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=[bootstrap])
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    assert consumer.end_offsets([partition])[partition] == 1, "one record is there"
    record = next(consumer)
    assert record.value == b"verification message", record
    consumer.close()


def check(what, make):
    global failed
    try:
        with make() as kafka:
            messages_pass(kafka.get_bootstrap_server())
        print("ok  python", what, flush=True)
    except Exception as error:
        print("FAIL python", what + ":", " ".join(repr(error).split())[:300], flush=True)
        failed = True


check("KafkaContainer with ZooKeeper, its default", lambda: KafkaContainer(image))
check("KafkaContainer in KRaft mode", lambda: KafkaContainer(image).with_kraft())
check("KafkaContainer at a port of one's own", lambda: KafkaContainer(image, port=9888).with_kraft())
sys.exit(failed)
