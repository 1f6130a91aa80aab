// Testcontainers for Node with the image in Kafka's place. Arguments: the image under a tag below 8 (ZooKeeper), from 8 on (KRaft).
const { KafkaContainer } = require("@testcontainers/kafka");
const { Network } = require("testcontainers");
const { Kafka, logLevel } = require("kafkajs");

async function messagesPass(container) {
  const brokers = [`${container.getHost()}:${container.getMappedPort(9093)}`];
  const kafka = new Kafka({ logLevel: logLevel.NOTHING, brokers });
  const producer = kafka.producer();
  await producer.connect();
  const consumer = kafka.consumer({ groupId: "test-group" });
  await consumer.connect();
  await producer.send({ topic: "test-topic", messages: [{ value: "test message" }] });
  await consumer.subscribe({ topic: "test-topic", fromBeginning: true });
  const value = await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("no record within 20 s")), 20_000).unref();
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }).catch(reject);
  });
  if (value !== "test message") throw new Error(`read ${value}`);
  await consumer.disconnect();
  await producer.disconnect();
}

let failed = false;
async function check(what, body) {
  try {
    await body();
    console.log(`ok  node ${what}`);
  } catch (error) {
    console.log(`FAIL node ${what}: ${String(error).replace(/\s+/g, " ").slice(0, 300)}`);
    failed = true;
  }
}
async function within(container, body) {
  const started = await container.start();
  try {
    await body(started);
  } finally {
    await started.stop();
  }
}

(async () => {
  const [old, kraft] = process.argv.slice(2);
  await check("KafkaContainer with ZooKeeper, its default below 8", () => within(new KafkaContainer(old), messagesPass));
  await check("KafkaContainer in KRaft mode, from 8 on", () => within(new KafkaContainer(kraft), messagesPass));
  await check("KafkaContainer in KRaft mode with its storage formatted first", () =>
    within(new KafkaContainer(old).withKraft(), messagesPass));
  await check("KafkaContainer in a network of one's own", async () => {
    const network = await new Network().start();
    try {
      await within(new KafkaContainer(kraft).withNetwork(network).withNetworkAliases("kafka"), messagesPass);
    } finally {
      await network.stop();
    }
  });
  process.exit(failed ? 1 : 0);
})();
