import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.kafka.common.utils.internals.Exit;

/** Apache Kafka's command-line tools against a broker: Tools NAME BOOTSTRAP. Each tool's own main() runs with its own arguments; one JVM for all, as a JVM's start takes longer than most tools. */
public final class Tools {
    static Check check;
    static String bootstrap;

    /** What a tool wants done at the JVM's end, such as closing its producer. */
    private static final List<Runnable> hooks = new java.util.concurrent.CopyOnWriteArrayList<>();
    /** A tool's exit status: its first, as some tools catch what ends them here and exit again. */
    private static final AtomicReference<Integer> exit = new AtomicReference<>();
    private static final class Ended extends Error {
        Ended(int status) {
            super("exit " + status, null, false, false);
            exit.compareAndSet(null, status);
        }
    }
    private record Result(int status, String out, String err) {
        Result ok() {
            Check.that(status == 0, "exit status " + status + ": " + (err + out).replaceAll("\\s+", " "));
            return this;
        }
        /** The output must contain a match of this regular expression (lines' ends are `\n`, blanks as they are). */
        Matcher find(String pattern) {
            Matcher m = Pattern.compile(pattern, Pattern.MULTILINE).matcher(out);
            Check.that(m.find(), "no `" + pattern + "` in: " + out.replaceAll("\\s+", " "));
            return m;
        }
    }

    /** Runs a tool's main() as the shell scripts of Kafka do; its output and its exit status come back. */
    static Result tool(String tool, String input, String... arguments) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        PrintStream oldOut = System.out, oldErr = System.err;
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        exit.set(null);
        hooks.clear();
        List<String> all = new ArrayList<>(List.of("--bootstrap-server", bootstrap));
        all.addAll(List.of(arguments));
        Method main = Class.forName("org.apache.kafka.tools." + tool).getMethod("main", String[].class);
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        Thread thread = new Thread(() -> {
            try { main.invoke(null, (Object) all.toArray(String[]::new)); }
            catch (java.lang.reflect.InvocationTargetException e) { thrown.set(e.getCause()); }
            catch (Throwable e) { thrown.set(e); }
            hooks.forEach(Runnable::run);
        });
        try {
            thread.setDaemon(true);
            thread.start();
            thread.join(60_000);
        } finally { System.setOut(oldOut); System.setErr(oldErr); }
        if (thread.isAlive()) throw new AssertionError(tool + " hangs; it said: " + (err.toString() + out).replaceAll("\\s+", " "));
        int status = exit.get() != null ? exit.get() : thrown.get() == null ? 0 : 1;
        if (exit.get() == null && thrown.get() != null) err.writeBytes(thrown.get().toString().getBytes(StandardCharsets.UTF_8));
        return new Result(status, out.toString(StandardCharsets.UTF_8), err.toString(StandardCharsets.UTF_8));
    }
    static Result run(String tool, String... arguments) throws Exception { return tool(tool, "", arguments); }

    /** As `run`, in a JVM of its own: for tools that speak their last word as the JVM ends. */
    static Result process(String tool, String... arguments) throws Exception {
        List<String> all = new ArrayList<>(List.of("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path"),
            "org.apache.kafka.tools." + tool, "--bootstrap-server", bootstrap));
        all.addAll(List.of(arguments));
        Process process = new ProcessBuilder(all).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String out = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        return new Result(process.waitFor(), out, "");
    }

    // ---- the checks ----

    static void topics() throws Exception {
        String t = check.topic("topics");
        run("TopicCommand", "--create", "--topic", t, "--partitions", "3", "--replication-factor", "" + Check.REPLICAS, "--config", "retention.ms=7200000").ok().find("^Created topic " + t);
        Result again = run("TopicCommand", "--create", "--topic", t);
        Check.that(again.status() == 1 && again.out().contains("already exists"), "creating it again: " + again);
        run("TopicCommand", "--create", "--topic", t, "--if-not-exists").ok();
        Result described = run("TopicCommand", "--describe", "--topic", t).ok();
        described.find("^Topic: " + t + "\tTopicId: \\S{22}\tPartitionCount: 3\tReplicationFactor: " + Check.REPLICAS + "\tConfigs: .*retention.ms=7200000");
        for (int p = 0; p < 3; p++) described.find("^\tTopic: " + t + "\tPartition: " + p + "\tLeader: (\\d+)\tReplicas: \\1(,\\d+)*\tIsr: \\1(,\\d+)*\t");
        run("TopicCommand", "--list").ok().find("^" + t + "$");
        run("TopicCommand", "--alter", "--topic", t, "--partitions", "5").ok();
        eventually("5 partitions", () -> run("TopicCommand", "--describe", "--topic", t).out().contains("PartitionCount: 5"));
        Check.equal(run("TopicCommand", "--describe", "--under-replicated-partitions").ok().out().trim(), "", "under-replicated partitions");
        run("TopicCommand", "--delete", "--topic", t).ok();
        eventually("the topic to be gone", () -> !run("TopicCommand", "--list").out().contains(t));
        Check.equal(run("TopicCommand", "--describe", "--topic", t).status(), 1, "describing a topic that does not exist");
    }

    static void configs() throws Exception {
        String t = check.topic("configs");
        run("TopicCommand", "--create", "--topic", t, "--partitions", "1").ok();
        run("ConfigCommand", "--alter", "--topic", t, "--add-config", "retention.ms=3600000,cleanup.policy=[compact,delete]").ok().find("^Completed updating config for topic " + t);
        eventually("the config", () -> run("ConfigCommand", "--describe", "--topic", t).ok().out().contains("retention.ms=3600000"));
        Result described = run("ConfigCommand", "--describe", "--topic", t).ok();
        described.find("^  retention.ms=3600000 sensitive=false synonyms=\\{DYNAMIC_TOPIC_CONFIG:retention.ms=3600000.*\\}");
        described.find("^  cleanup.policy=compact,delete sensitive=false synonyms=");
        run("ConfigCommand", "--describe", "--topic", t, "--all").ok().find("^  segment.bytes=1073741824 sensitive=false synonyms=\\{.*DEFAULT_CONFIG:log.segment.bytes=1073741824\\}");
        run("ConfigCommand", "--alter", "--topic", t, "--delete-config", "retention.ms").ok();
        eventually("the config to be gone", () -> !run("ConfigCommand", "--describe", "--topic", t).ok().out().contains("retention.ms="));
        Result bad = run("ConfigCommand", "--alter", "--topic", t, "--add-config", "retention.ms=soon");
        Check.that(bad.status() == 1 && (bad.out() + bad.err()).contains("Invalid value soon for configuration retention.ms"), "a wrong value: " + bad);
        // Of one broker and of all.
        String broker = brokerId();
        run("ConfigCommand", "--alter", "--broker-defaults", "--add-config", "log.retention.ms=86400000").ok();
        eventually("the cluster's config", () -> run("ConfigCommand", "--describe", "--broker-defaults").ok().out().contains("log.retention.ms=86400000"));
        run("ConfigCommand", "--describe", "--topic", t, "--all").ok().find("^  retention.ms=86400000 ");
        run("ConfigCommand", "--alter", "--broker", broker, "--add-config", "log.cleaner.threads=2").ok();
        eventually("the broker's config", () -> run("ConfigCommand", "--describe", "--broker", broker).ok().out().contains("log.cleaner.threads=2"));
        run("ConfigCommand", "--alter", "--broker", broker, "--delete-config", "log.cleaner.threads").ok();
        run("ConfigCommand", "--alter", "--broker-defaults", "--delete-config", "log.retention.ms").ok();
        run("ConfigCommand", "--describe", "--broker", broker, "--all").ok().find("^  num.io.threads=\\d+ ");
    }
    static String brokerId() throws Exception { return run("BrokerApiVersionsCommand").ok().find("\\(id: (\\d+) rack: ").group(1); }

    static void apiVersions() throws Exception {
        Result r = run("BrokerApiVersionsCommand").ok();
        r.find("^" + "(" + bootstrap.replace(",", "|") + ") \\(id: \\d+ rack: \\S+ isFenced: false\\) -> \\(");
        for (String api : List.of("Produce\\(0\\): 0 to 13", "Fetch\\(1\\): 4 to 18", "Metadata\\(3\\): 0 to 13", "JoinGroup\\(11\\): 0 to 9", "ApiVersions\\(18\\): 0 to [45]", "CreateTopics\\(19\\): 2 to 7"))
            r.find("^\t" + api + " \\[usable: \\d+\\]");
    }

    static void console(String codec) throws Exception {
        String t = check.topic("console-" + codec), group = check.topic("console-" + codec);
        run("TopicCommand", "--create", "--topic", t, "--partitions", "2").ok();
        StringBuilder lines = new StringBuilder();
        for (int i = 0; i < 200; i++) lines.append("n:").append(i).append("\tkey-").append(i).append(":value-").append(i).append('\n');
        tool("ConsoleProducer", lines.toString(), "--topic", t, "--compression-codec", codec, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:",
            "--reader-property", "parse.headers=true", "--reader-property", "headers.key.separator=:").ok();
        Result r = run("consumer.ConsoleConsumer", "--topic", t, "--from-beginning", "--group", group, "--max-messages", "200", "--timeout-ms", "20000",
            "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true", "--formatter-property", "print.partition=true",
            "--formatter-property", "print.offset=true", "--formatter-property", "print.timestamp=true").ok();
        Matcher m = Pattern.compile("^CreateTime:\\d{13}\tPartition:(\\d)\tOffset:(\\d+)\tn:(\\d+)\tkey-\\3\tvalue-\\3$", Pattern.MULTILINE).matcher(r.out());
        TreeSet<Integer> seen = new TreeSet<>();
        int[] next = new int[2];
        while (m.find()) {
            Check.equal(m.group(2), next[Integer.parseInt(m.group(1))]++, "the offset in partition " + m.group(1));
            seen.add(Integer.parseInt(m.group(3)));
        }
        Check.equal(seen.size() + " " + (next[0] + next[1]), "200 200", "different records and records");
        Result one = run("consumer.ConsoleConsumer", "--topic", t, "--partition", "0", "--offset", "3", "--max-messages", "1", "--timeout-ms", "20000", "--formatter-property", "print.offset=true").ok();
        one.find("^Offset:3\tvalue-\\d+$");
    }

    static void groups() throws Exception {
        String t = check.topic("groups"), group = check.topic("groups");
        run("TopicCommand", "--create", "--topic", t, "--partitions", "1").ok();
        tool("ConsoleProducer", "a\nb\nc\nd\ne\n", "--topic", t).ok();
        run("consumer.ConsoleConsumer", "--topic", t, "--from-beginning", "--group", group, "--max-messages", "3", "--timeout-ms", "20000").ok().find("^a\nb\nc$");
        run("consumer.group.ConsumerGroupCommand", "--list").ok().find("^" + group + "$");
        run("consumer.group.ConsumerGroupCommand", "--list", "--state").ok().find("^" + group + "\\s+Empty");
        run("consumer.group.ConsumerGroupCommand", "--describe", "--group", group).ok().find("^" + group + "\\s+" + t + "\\s+0\\s+3\\s+5\\s+2\\s+-\\s+-\\s+-");
        run("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--state").ok().find("^" + group + "\\s+\\S+\\s+\\(\\d+\\)\\s+-?\\s+Empty\\s+0");
        run("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--members").ok();
        run("consumer.group.ConsumerGroupCommand", "--reset-offsets", "--group", group, "--topic", t, "--shift-by", "-2", "--execute").ok().find("^" + group + "\\s+" + t + "\\s+0\\s+1\\s*$");
        run("consumer.ConsoleConsumer", "--topic", t, "--group", group, "--max-messages", "4", "--timeout-ms", "20000").ok().find("^b\nc\nd\ne$");
        run("consumer.group.ConsumerGroupCommand", "--delete-offsets", "--group", group, "--topic", t).ok();
        run("consumer.group.ConsumerGroupCommand", "--reset-offsets", "--group", group, "--topic", t, "--to-datetime", "2020-01-01T00:00:00.000", "--dry-run").ok().find("^" + group + "\\s+" + t + "\\s+0\\s+0\\s*$");
        run("consumer.group.ConsumerGroupCommand", "--delete", "--group", group).ok().find("successful");
        Check.that(!run("consumer.group.ConsumerGroupCommand", "--list").ok().out().contains(group), "the group is gone");
        run("GroupsCommand", "--list").ok();
    }

    static void offsets() throws Exception {
        String t = check.topic("offsets");
        run("TopicCommand", "--create", "--topic", t, "--partitions", "2").ok();
        tool("ConsoleProducer", "k:a\nk:b\nk:c\n", "--topic", t, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:").ok();
        Result latest = run("GetOffsetShell", "--topic", t).ok();
        int loaded = latest.out().contains(t + ":0:3") ? 0 : 1;
        latest.find("^" + t + ":" + loaded + ":3$");
        latest.find("^" + t + ":" + (1 - loaded) + ":0$");
        run("GetOffsetShell", "--topic-partitions", t + ":" + loaded, "--time", "earliest").ok().find("^" + t + ":" + loaded + ":0$");
        run("GetOffsetShell", "--topic-partitions", t + ":" + loaded, "--time", "max-timestamp").ok().find("^" + t + ":" + loaded + ":[012]$");
        run("GetOffsetShell", "--topic-partitions", t + ":" + loaded, "--time", "1000").ok().find("^" + t + ":" + loaded + ":0$");
        Path file = Files.createTempFile("delete-records", ".json");
        Files.writeString(file, "{\"partitions\":[{\"topic\":\"" + t + "\",\"partition\":" + loaded + ",\"offset\":2}],\"version\":1}");
        run("DeleteRecordsCommand", "--offset-json-file", file.toString()).ok().find("partition: " + t + "-" + loaded + "\\s+low_watermark: 2");
        Files.delete(file);
        run("GetOffsetShell", "--topic-partitions", t + ":" + loaded, "--time", "earliest").ok().find("^" + t + ":" + loaded + ":2$");
        Matcher m = run("LogDirsCommand", "--describe", "--topic-list", t).ok().find("\"partition\":\"" + t + "-" + loaded + "\",\"size\":(\\d+),\"offsetLag\":0,\"isFuture\":false");
        Check.that(Integer.parseInt(m.group(1)) > 60, "the partition's size");
    }

    static void verifiable() throws Exception {
        String t = check.topic("verifiable"), group = check.topic("verifiable");
        run("TopicCommand", "--create", "--topic", t, "--partitions", "2").ok();
        Result sent = process("VerifiableProducer", "--topic", t, "--max-messages", "500", "--acks", "-1").ok();
        sent.find("\"name\":\"tool_data\",\"sent\":500,\"acked\":500,");
        Result received = run("VerifiableConsumer", "--topic", t, "--group-id", group, "--max-messages", "500", "--verbose").ok();
        Matcher m = Pattern.compile("\"value\":\"(\\d+)\"").matcher(received.out());
        TreeSet<Integer> values = new TreeSet<>();
        while (m.find()) values.add(Integer.parseInt(m.group(1)));
        Check.equal(values.size() + " " + values.last(), "500 499", "values received");
        received.find("\"name\":\"offsets_committed\",.*\"success\":true");
    }

    static void perf() throws Exception {
        String t = check.topic("perf");
        run("TopicCommand", "--create", "--topic", t, "--partitions", "3").ok();
        for (Map.Entry<String, String> e : Map.of("none", "1", "lz4", "all").entrySet())
            run("ProducerPerformance", "--topic", t, "--num-records", "20000", "--record-size", "200", "--throughput", "-1",
                "--command-property", "acks=" + e.getValue(), "compression.type=" + e.getKey()).ok().find("^20000 records sent, ");
        // What acks=1 acknowledged becomes visible with the next flush.
        eventually("40000 records in the log", () -> {
            long total = 0;
            Matcher m = Pattern.compile("^" + t + ":\\d:(\\d+)$", Pattern.MULTILINE).matcher(run("GetOffsetShell", "--topic", t).ok().out());
            while (m.find()) total += Long.parseLong(m.group(1));
            Check.that(total <= 40000, total + " records in the log");
            return total == 40000;
        });
        run("ConsumerPerformance", "--topic", t, "--num-records", "40000", "--timeout", "20000").ok().find("40000");
    }

    /** A described topic without who leads now, and in which order replicas came back in sync. */
    static String placed(String described) {
        return Check.REPLICAS == 1 ? described : described.replaceAll("\tLeader: \\d+", "").replaceAll("\tIsr: [\\d,]+", "");
    }

    /** After a restart of the broker the tools see topics, records, configs and groups as before. */
    static void restart(String how) throws Exception {
        String t = check.topic("restart-" + how), group = check.topic("restart-" + how);
        run("TopicCommand", "--create", "--topic", t, "--partitions", "2", "--config", "retention.ms=7200000").ok();
        tool("ConsoleProducer", "k:a\nk:b\nk:c\n", "--topic", t, "--command-property", "acks=all", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:").ok();
        run("consumer.ConsoleConsumer", "--topic", t, "--from-beginning", "--group", group, "--max-messages", "2", "--timeout-ms", "20000").ok().find("^a\nb$");
        String before = run("TopicCommand", "--describe", "--topic", t).ok().out();
        Check.restart(how);
        Check.equal(placed(run("TopicCommand", "--describe", "--topic", t).ok().out()), placed(before), "the described topic");
        run("ConfigCommand", "--describe", "--topic", t).ok().find("retention.ms=7200000");
        run("consumer.group.ConsumerGroupCommand", "--describe", "--group", group).ok().find("^" + group + "\\s+" + t + "\\s+\\d\\s+2\\s+3\\s+1\\s");
        run("consumer.ConsoleConsumer", "--topic", t, "--group", group, "--max-messages", "1", "--timeout-ms", "20000").ok().find("^c$");
    }

    static void eventually(String what, java.util.concurrent.Callable<Boolean> condition) throws Exception { Check.eventually(what, 20, condition); }

    public static void main(String[] arguments) throws Exception {
        check = new Check(arguments[0]);
        bootstrap = arguments[1];
        Exit.setExitProcedure((status, message) -> { throw new Ended(status); });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        Exit.setHaltProcedure((status, message) -> { throw new Ended(status); });
        check.check("kafka-broker-api-versions", Tools::apiVersions);
        check.check("kafka-topics", Tools::topics);
        check.check("kafka-configs", Tools::configs);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) check.check("kafka-console-producer, -consumer " + codec, () -> console(codec));
        check.check("kafka-consumer-groups", Tools::groups);
        check.check("kafka-get-offsets, -delete-records, -log-dirs", Tools::offsets);
        check.check("kafka-verifiable-producer, -consumer", Tools::verifiable);
        check.check("kafka-producer-perf-test, -consumer-perf-test", Tools::perf);
        for (String how : List.of("term", "kill")) check.checkWithRestart("restart " + how, () -> restart(how));
        check.exit();
    }
}
