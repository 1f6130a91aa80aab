import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/** A broker under comparison: a process of ours with a fresh directory, or one that runs already. */
final class Target implements AutoCloseable {
    /** What both sides are started with, in Kafka's keys. */
    private static final Map<String, String> CONFIG = new TreeMap<>(Map.of(
            "num.partitions", "1",
            "offsets.topic.replication.factor", "1",
            "transaction.state.log.replication.factor", "1",
            "transaction.state.log.min.isr", "1",
            "group.initial.rebalance.delay.ms", "0",
            "group.max.size", "2",
            "group.min.session.timeout.ms", "100",
            "log.initial.task.delay.ms", "3600000"));

    final String name;
    final String host;
    final int port;
    private final Process process;
    private final Path log;

    private Target(String name, String host, int port, Process process, Path log) {
        this.name = name;
        this.host = host;
        this.port = port;
        this.process = process;
        this.log = log;
    }

    static Target running(String address) {
        int colon = address.lastIndexOf(':');
        return new Target(
                "there", address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)), null, null);
    }

    static Target kafka(String name, Path directory) throws IOException {
        int port = freePort();
        int controller = freePort();
        Path home = Files.createDirectories(directory.resolve(name));
        Map<String, String> config = new TreeMap<>(CONFIG);
        config.put("process.roles", "broker,controller");
        config.put("node.id", "1");
        config.put("controller.quorum.voters", "1@127.0.0.1:" + controller);
        config.put("controller.listener.names", "CONTROLLER");
        config.put("listeners", "PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + controller);
        config.put("advertised.listeners", "PLAINTEXT://127.0.0.1:" + port);
        config.put("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT");
        config.put("log.dirs", home.resolve("data").toString());
        config.put("share.coordinator.state.topic.replication.factor", "1");
        config.put("share.coordinator.state.topic.min.isr", "1");
        Path file = home.resolve("server.properties");
        Files.writeString(file, text(config));
        try (PrintStream out = new PrintStream(home.resolve("format.log").toFile())) {
            String[] args = {"format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", file.toString()};
            if (kafka.tools.StorageTool.execute(args, out) != 0) {
                throw new IOException("Kafka's directory could not be made; see " + home.resolve("format.log"));
            }
        }
        Path log = home.resolve("server.log");
        Process process = new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-Xmx768M",
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                        "-Dlog4j2.configurationFile=" + System.getProperty("differential.home") + "/log4j2.properties",
                        "-cp",
                        System.getProperty("java.class.path"),
                        "kafka.Kafka",
                        file.toString())
                .redirectErrorStream(true)
                .redirectOutput(log.toFile())
                .start();
        return new Target(name, "127.0.0.1", port, process, log);
    }

    static Target ottla(String binary, Path directory) throws IOException {
        int port = freePort();
        Path home = Files.createDirectories(directory.resolve("ottla"));
        Map<String, String> config = new TreeMap<>(CONFIG);
        config.put("node.id", "1");
        config.put("listeners", "PLAINTEXT://127.0.0.1:" + port);
        config.put("log.dirs", home.resolve("data").toString());
        config.put("metrics.listeners", "127.0.0.1:" + freePort());
        // A file of its own keeps the built-in one, and the sources of its values, out of the comparison.
        Path file = home.resolve("server.properties");
        Files.writeString(file, text(config));
        List<String> command = List.of(new File(binary).getAbsolutePath(), file.toString());
        Path log = home.resolve("server.log");
        Process process = new ProcessBuilder(command)
                .directory(home.toFile())
                .redirectErrorStream(true)
                .redirectOutput(log.toFile())
                .start();
        return new Target("ottla", "127.0.0.1", port, process, log);
    }

    private static String text(Map<String, String> config) {
        StringBuilder text = new StringBuilder();
        config.forEach((key, value) -> text.append(key).append('=').append(value).append('\n'));
        return text.toString();
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    Connection connect() throws IOException {
        return new Connection(host, port);
    }

    /** The end of the broker's output, for a failure that only it can explain. */
    String lastWords() {
        if (log == null) {
            return "";
        }
        try {
            List<String> lines = Files.readAllLines(log);
            return String.join("\n", lines.subList(Math.max(0, lines.size() - 15), lines.size()));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    boolean died() {
        return process != null && !process.isAlive();
    }

    @Override
    public void close() {
        if (process == null) {
            return;
        }
        process.destroyForcibly();
        try {
            process.waitFor(10, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
