import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Apache Kafka's command-line tools one after the other in one JVM, whose start takes longer than most of them. A line of standard input
 * is a tool's name, its standard input and its arguments, base64 each, between blanks; a line of standard output is exit status, output and errors.
 */
public final class KafkaTools {
    static final Map<String, String> CLASSES = Map.of(
        "kafka-topics", "org.apache.kafka.tools.TopicCommand",
        "kafka-configs", "org.apache.kafka.tools.ConfigCommand",
        "kafka-consumer-groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "kafka-console-producer", "org.apache.kafka.tools.ConsoleProducer",
        "kafka-console-consumer", "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "kafka-get-offsets", "org.apache.kafka.tools.GetOffsetShell",
        "kafka-broker-api-versions", "org.apache.kafka.tools.BrokerApiVersionsCommand",
        "kafka-cluster", "org.apache.kafka.tools.ClusterTool",
        "kafka-storage", "kafka.tools.StorageTool");
    private static final List<Runnable> hooks = new CopyOnWriteArrayList<>();
    /** A tool's exit status: its first, as some tools catch what ends them here and exit again. */
    private static final AtomicReference<Integer> exit = new AtomicReference<>();
    private static final class Ended extends Error {
        Ended(int status) {
            super("exit " + status, null, false, false);
            exit.compareAndSet(null, status);
        }
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((status, message) -> { throw new Ended(status); });
        Exit.setHaltProcedure((status, message) -> { throw new Ended(status); });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = requests.readLine()) != null; ) {
            List<String> fields = new ArrayList<>();
            for (String field : line.split(" ", -1)) fields.add(new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8));
            answers.println(run(fields.get(0), fields.get(1), fields.subList(2, fields.size()).toArray(String[]::new)));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static String run(String tool, String input, String... arguments) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        PrintStream oldOut = System.out, oldErr = System.err;
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        exit.set(null);
        hooks.clear();
        Method main = Class.forName(CLASSES.get(tool)).getMethod("main", String[].class);
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        Thread thread = new Thread(() -> {
            try { main.invoke(null, (Object) arguments); }
            catch (InvocationTargetException e) { thrown.set(e.getCause()); }
            catch (Throwable e) { thrown.set(e); }
            hooks.forEach(Runnable::run);
        });
        thread.setDaemon(true);
        thread.start();
        thread.join(60_000);
        int status;
        if (thread.isAlive()) {
            status = 124;
        } else if (exit.get() != null) {
            status = exit.get();
        } else if (thrown.get() == null) {
            status = 0;
        } else {
            status = 1;
            System.err.println("Exception in thread \"main\" " + thrown.get());
        }
        System.setOut(oldOut);
        System.setErr(oldErr);
        Base64.Encoder base64 = Base64.getEncoder();
        return status + " " + base64.encodeToString(out.toByteArray()) + " " + base64.encodeToString(err.toByteArray());
    }
}
