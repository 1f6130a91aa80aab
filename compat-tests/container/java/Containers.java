import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.Network;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Testcontainers for Java with the image in Kafka's place. Argument: the image. */
public final class Containers {
    public static void main(String[] arguments) {
        DockerImageName image = DockerImageName.parse(arguments[0]);
        DockerImageName apache = image.asCompatibleSubstituteFor("apache/kafka");
        DockerImageName confluent = image.asCompatibleSubstituteFor("confluentinc/cp-kafka");
        Check check = new Check("java");
        check.check("KafkaContainer in place of apache/kafka", () -> {
            try (KafkaContainer kafka = new KafkaContainer(apache)) {
                kafka.start();
                messagesPass(kafka.getBootstrapServers());
            }
        });
        check.check("KafkaContainer in place of apache/kafka-native", () -> {
            try (KafkaContainer kafka = new KafkaContainer(image.asCompatibleSubstituteFor("apache/kafka-native"))) {
                kafka.start();
                messagesPass(kafka.getBootstrapServers());
            }
        });
        check.check("KafkaContainer with a root log level of ERROR", () -> {
            try (KafkaContainer kafka = new KafkaContainer(apache).withEnv("KAFKA_LOG4J_ROOT_LOGLEVEL", "ERROR")) {
                kafka.start();
                messagesPass(kafka.getBootstrapServers());
            }
        });
        check.check("KafkaContainer with a listener for its network", () -> {
            try (Network network = Network.newNetwork();
                 KafkaContainer kafka = new KafkaContainer(apache).withListener("kafka:19092").withNetwork(network);
                 GenericContainer<?> neighbour = new GenericContainer<>(image).withNetwork(network).withCommand("sleep", "300")) {
                kafka.start();
                neighbour.start();
                messagesPass(kafka.getBootstrapServers());
                var produced = neighbour.execInContainer("bash", "-c",
                    "echo 'from next door' | kafka-console-producer --bootstrap-server kafka:19092 --topic msgs");
                Check.equal(produced.getExitCode(), 0, "the producer's exit status: " + produced.getStderr());
                var consumed = neighbour.execInContainer("kafka-console-consumer", "--bootstrap-server", "kafka:19092",
                    "--topic", "msgs", "--from-beginning", "--max-messages", "1", "--timeout-ms", "10000");
                Check.equal(consumed.getStdout().trim(), "from next door", "what the neighbour reads");
            }
        });
        check.check("ConfluentKafkaContainer in place of confluentinc/cp-kafka", () -> {
            try (ConfluentKafkaContainer kafka = new ConfluentKafkaContainer(confluent)) {
                kafka.start();
                messagesPass(kafka.getBootstrapServers());
            }
        });
        check.check("the old KafkaContainer with ZooKeeper", () -> {
            try (var kafka = new org.testcontainers.containers.KafkaContainer(confluent)) {
                kafka.start();
                messagesPass(kafka.getBootstrapServers());
            }
        });
        check.check("the old KafkaContainer in KRaft mode", () -> {
            try (var kafka = new org.testcontainers.containers.KafkaContainer(confluent).withKraft()) {
                kafka.start();
                messagesPass(kafka.getBootstrapServers());
            }
        });
        check.exit();
    }

    /** What Testcontainers' own tests do with every Kafka container. */
    static void messagesPass(String bootstrap) throws Exception {
        Map<String, Object> common = Map.of("bootstrap.servers", bootstrap);
        Map<String, Object> consuming = Map.of("bootstrap.servers", bootstrap, "group.id", "tc-" + UUID.randomUUID(),
            "auto.offset.reset", "earliest");
        String topic = "messages-" + UUID.randomUUID();
        try (Admin admin = Admin.create(common);
             var producer = new KafkaProducer<>(common, new StringSerializer(), new StringSerializer());
             var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get(30, TimeUnit.SECONDS);
            consumer.subscribe(List.of(topic));
            producer.send(new ProducerRecord<>(topic, "testcontainers", "rulezzz")).get();
            long end = System.nanoTime() + Duration.ofSeconds(10).toNanos();
            while (System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    Check.equal(record.topic() + " " + record.key() + " " + record.value(), topic + " testcontainers rulezzz", "the record");
                    consumer.unsubscribe();
                    return;
                }
            }
            throw new AssertionError("no record within 10 s");
        }
    }
}
