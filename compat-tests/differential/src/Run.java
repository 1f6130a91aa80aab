import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Starts both brokers, asks both everything in {@code cases/}, reports where they differ. */
final class Run {
    private static final int DIFFERENCES_SHOWN = 6;

    private final Target kafka;
    private final Target ottla;
    private final Compare compare;
    private final ExecutorService sides = Executors.newCachedThreadPool(Run::daemon);
    private final Options options;
    private int passed;
    private int failed;
    private int covered;
    private int total;
    private final List<String> uncovered = new ArrayList<>();

    private static final class Options {
        String left = "kafka";
        String right = System.getenv().getOrDefault("OTTLA", "target/release/ottla");
        Set<String> only = new HashSet<>();
        String row = "";
        String corrupt;
        boolean verbose;
        boolean keep;
        boolean codes;
        int lanes = 3;

        /** Keeps names apart where brokers that run already are asked a second time. */
        String prefix() {
            return (left + right).matches(".*:\\d+.*") ? Long.toString(Batches.NOW / 100, 36) + "-" : "";
        }
    }

    private Run(Target kafka, Target ottla, Compare compare, Options options) {
        this.kafka = kafka;
        this.ottla = ottla;
        this.compare = compare;
        this.options = options;
    }

    public static void main(String[] args) throws Exception {
        Options options = options(args);
        Path home = Path.of(System.getProperty("differential.home"));
        List<Row.File> files = new ArrayList<>();
        List<String> missing = new ArrayList<>();
        for (Map.Entry<String, JsonNode> api : Row.yaml(home.resolve("apis.yaml")).properties()) {
            Path path = home.resolve("cases").resolve(api.getKey() + ".yaml");
            if (!options.only.isEmpty() && !options.only.contains(api.getKey().toLowerCase(Locale.ROOT))) {
                continue;
            }
            if (Files.exists(path)) {
                files.add(new Row.File(path, api.getKey(), Row.versions(api.getValue().asText())));
            } else {
                missing.add(api.getKey());
            }
        }
        Compare compare = new Compare(Mask.list(Row.yaml(home.resolve("masks.yaml")), "*"));
        Path directory = Files.createTempDirectory("differential");
        int status;
        long began = System.currentTimeMillis();
        try (Target left = start(options.left, "kafka", directory);
                Target right = start(options.right, "ottla", directory)) {
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                left.close();
                right.close();
            }));
            settle(left);
            settle(right);
            System.err.printf("both brokers serve after %.1f s%n", (System.currentTimeMillis() - began) / 1000.0);
            Run run = new Run(left, right, compare, options);
            run.advertised(right, Row.yaml(home.resolve("apis.yaml")));
            status = run.all(files, missing);
            System.err.printf("%.1f s in all%n", (System.currentTimeMillis() - began) / 1000.0);
        } finally {
            if (options.keep) {
                System.err.println("kept: " + directory);
            } else {
                delete(directory);
            }
        }
        System.exit(status);
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    }

    private static Options options(String[] args) {
        Options options = new Options();
        for (int i = 0; i < args.length; i++) {
            switch (args[i]) {
                case "--left" -> options.left = args[++i];
                case "--right", "--ottla" -> options.right = args[++i];
                case "--kafka-kafka" -> options.right = "kafka";
                case "--only" -> options.only.addAll(List.of(args[++i].toLowerCase(Locale.ROOT).split(",")));
                case "--row" -> options.row = args[++i];
                case "--corrupt" -> options.corrupt = args[++i];
                case "--lanes" -> options.lanes = Integer.parseInt(args[++i]);
                case "--verbose", "-v" -> options.verbose = true;
                case "--codes" -> options.codes = true;
                case "--keep" -> options.keep = true;
                default -> {
                    System.err.println("unknown option " + args[i]);
                    System.exit(2);
                }
            }
        }
        return options;
    }

    private static Target start(String what, String name, Path directory) throws IOException {
        if (what.equals("kafka")) {
            return Target.kafka(name.equals("kafka") ? "kafka" : "kafka-too", directory);
        }
        return what.matches("[\\w.]+:\\d+") ? Target.running(what) : Target.ottla(what, directory);
    }

    /** Waits until the broker serves, its coordinators too. */
    private static void settle(Target target) throws InterruptedException {
        long deadline = System.currentTimeMillis() + 60_000;
        ObjectNode group = Row.MAPPER.createObjectNode();
        group.putArray("coordinatorKeys").add("warm");
        ObjectNode join = Row.MAPPER.createObjectNode().put("groupId", "warm");
        while (true) {
            try (Flow flow = new Flow(target, null, (short) 0, "warm")) {
                JsonNode found = flow.ask("FindCoordinator", 4, group);
                if (codes(found).isEmpty() && !found.has("outcome")) {
                    JsonNode beat = flow.ask("Heartbeat", 3, join);
                    if (beat.path("errorCode").asInt() == 25) {
                        JsonNode id = flow.ask("InitProducerId", 3, Row.MAPPER.createObjectNode().putNull("transactionalId"));
                        if (codes(id).isEmpty() && !id.has("outcome")) {
                            return;
                        }
                    }
                }
            } catch (IOException e) {
                // Not listening yet.
            }
            if (target.died() || System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(target.name + " does not serve:\n" + target.lastWords());
            }
            Thread.sleep(50);
        }
    }

    /** What the second side advertises and no list says has to be asked for fails. */
    private void advertised(Target target, JsonNode apis) throws IOException {
        if (target.name.startsWith("kafka")) {
            return;
        }
        JsonNode answer;
        try (Flow flow = new Flow(target, null, (short) 0, "advertised")) {
            answer = flow.ask("ApiVersions", 0, Row.MAPPER.createObjectNode());
        }
        for (JsonNode api : answer.get("apiKeys")) {
            String name = Messages.name(Messages.api(api.get("apiKey").asText()));
            Set<Short> unlisted = Row.versions(api.get("minVersion").asText() + "-" + api.get("maxVersion").asText());
            if (apis.has(name)) {
                unlisted.removeAll(Row.versions(apis.get(name).asText()));
            }
            if (name.equals("Produce")) {
                unlisted.removeAll(Row.versions("0-2")); // advertised for old librdkafka, as Kafka does
            }
            if (!unlisted.isEmpty()) {
                failed++;
                System.out.printf("FAIL %s v%s is advertised but has no rows%n", name, Row.ranges(unlisted));
            }
        }
    }

    private int all(List<Row.File> files, List<String> missing) throws Exception {
        ExecutorService lanes = Executors.newFixedThreadPool(options.lanes, Run::daemon);
        Map<Row.File, Future<Report>> reports = new LinkedHashMap<>();
        for (Row.File file : files) {
            reports.put(file, lanes.submit(() -> file(file)));
        }
        for (Map.Entry<Row.File, Future<Report>> entry : reports.entrySet()) {
            report(entry.getKey(), entry.getValue().get());
        }
        for (String name : missing) {
            failed++;
            total++;
            uncovered.add(name + ": no case file");
        }
        lanes.shutdown();
        sides.shutdown();
        for (String line : uncovered) {
            System.out.println("uncovered " + line);
        }
        System.out.printf("covered %d / %d%n", covered, total);
        System.out.printf("%d passed, %d failed%n", passed, failed);
        return failed == 0 ? 0 : 1;
    }

    // ---- one API ----

    private static final class Report {
        int rows;
        /** Failure text without its version → the versions it was seen in. */
        final Map<String, Set<Short>> failures = new LinkedHashMap<>();

        final Set<String> failedRows = new HashSet<>();
        final Map<Short, Integer> successes = new TreeMap<>();
        final Map<Integer, Set<Short>> errors = new TreeMap<>();
        boolean controlled;
    }

    private Report file(Row.File file) throws Exception {
        Report report = new Report();
        for (Row row : file.rows) {
            if (!row.name.contains(options.row)) {
                continue;
            }
            for (short version : row.versions) {
                report.rows++;
                long began = System.currentTimeMillis();
                row(row, version, report);
                long took = System.currentTimeMillis() - began;
                if (options.verbose && took > 500) {
                    System.err.printf("slow: %s v%d \"%s\" %d ms%n", row.apiName, version, row.name, took);
                }
            }
        }
        return report;
    }

    private void row(Row row, short version, Report report) throws Exception {
        String unique = options.prefix() + row.apiName.toLowerCase(Locale.ROOT) + "-" + version + "-" + row.number;
        Future<List<Flow.Outcome>> other = sides.submit(() -> run(ottla, row, version, unique));
        List<Flow.Outcome> left;
        List<Flow.Outcome> right;
        try {
            left = run(kafka, row, version, unique);
        } catch (RuntimeException | IOException e) {
            other.cancel(false);
            fail(report, row, version, "on kafka: " + message(e));
            return;
        }
        try {
            right = other.get();
        } catch (java.util.concurrent.ExecutionException e) {
            fail(report, row, version, "on ottla: " + message(e.getCause()));
            count(row, left, report);
            return;
        }
        if (options.verbose) {
            left.forEach(outcome -> System.err.printf(
                    "%s v%d \"%s\": %s v%d %s%n", row.apiName, version, row.name, outcome.api(), outcome.version(), outcome.answer()));
        }
        Set<Integer> seen = count(row, left, report);
        if (row.expect != null && !row.expect.equals(seen)) {
            fail(report, row, version, "kafka was to answer with error codes " + row.expect + ", did with " + seen);
        }
        for (int i = 0; i < left.size(); i++) {
            Flow.Outcome outcome = left.get(i);
            JsonNode answer = right.get(i).answer();
            if (options.corrupt != null) {
                answer = corrupted(outcome.api(), answer);
            }
            List<Compare.Difference> differences =
                    compare.differences(outcome.api(), row, unique, outcome.answer(), answer);
            String step = left.size() > 1 ? "step " + (i + 1) + " " + outcome.api() + ": " : "";
            for (Compare.Difference d : differences.subList(0, Math.min(DIFFERENCES_SHOWN, differences.size()))) {
                fail(report, row, version, step + d.path() + " kafka=" + d.kafka() + " ottla=" + d.ottla());
            }
            if (differences.size() > DIFFERENCES_SHOWN) {
                fail(report, row, version, step + "… and " + (differences.size() - DIFFERENCES_SHOWN) + " more fields");
            }
            if (!report.controlled && differences.isEmpty()) {
                report.controlled = noticed(row, unique, outcome);
            }
        }
    }

    private static String message(Throwable e) {
        return e instanceof Messages.Fault ? e.getMessage() : e.toString();
    }

    private static List<Flow.Outcome> run(Target target, Row row, short version, String unique)
            throws IOException, InterruptedException {
        try (Flow flow = new Flow(target, row, version, unique)) {
            return flow.run(row);
        }
    }

    /** Adds what Kafka's answers show to what is covered; returns their error codes. */
    private static Set<Integer> count(Row row, List<Flow.Outcome> outcomes, Report report) {
        Set<Integer> all = new TreeSet<>();
        for (Flow.Outcome outcome : outcomes) {
            Set<Integer> codes = codes(outcome.answer());
            all.addAll(codes);
            if (!outcome.api().equals(row.apiName)) {
                continue;
            }
            if (codes.isEmpty() && !outcome.answer().has("outcome")) {
                report.successes.merge(outcome.version(), 1, Integer::sum);
            }
            for (int code : codes) {
                report.errors.computeIfAbsent(code, c -> new TreeSet<>()).add(outcome.version());
            }
        }
        return all;
    }

    /** Every error code of an answer, at whatever depth, but 0. */
    static Set<Integer> codes(JsonNode node) {
        Set<Integer> codes = new TreeSet<>();
        for (JsonNode found : node.findValues("errorCode")) {
            codes.add(found.asInt());
        }
        // findValues does not look inside of what it found, and does not need to: a code is a number.
        codes.remove(0);
        return codes;
    }

    private static void fail(Report report, Row row, short version, String text) {
        report.failures
                .computeIfAbsent("row \"" + row.name + "\": " + text, t -> new TreeSet<>())
                .add(version);
        report.failedRows.add(row.name + " " + version);
    }

    /** {@code --corrupt API:path} makes one field of the second side's answers wrong. */
    private JsonNode corrupted(String api, JsonNode answer) {
        String[] what = options.corrupt.split(":", 2);
        if (!what[0].equalsIgnoreCase(api)) {
            return answer;
        }
        for (List<String> leaf : Compare.leaves(answer)) {
            if (String.join(".", leaf).equals(what[1])) {
                return Compare.corrupt(answer, leaf);
            }
        }
        return answer;
    }

    /** The control: a wrong field in an answer that was found equal must be reported. */
    private boolean noticed(Row row, String unique, Flow.Outcome outcome) {
        if (!outcome.api().equals(row.apiName)) {
            return false;
        }
        for (List<String> leaf : Compare.leaves(outcome.answer())) {
            JsonNode wrong = Compare.corrupt(outcome.answer(), leaf);
            if (!compare.differences(outcome.api(), row, unique, outcome.answer(), wrong).isEmpty()) {
                return true;
            }
        }
        return false;
    }

    private void report(Row.File file, Report report) {
        boolean filtered = !options.row.isEmpty();
        for (Map.Entry<String, Set<Short>> failure : report.failures.entrySet()) {
            System.out.printf("FAIL %s v%s %s%n", file.name, Row.ranges(failure.getValue()), failure.getKey());
        }
        int bad = report.failedRows.size();
        passed += report.rows - bad;
        failed += bad;
        if (options.codes) {
            report.errors.forEach((code, versions) -> System.out.printf(
                    "code %s %d: %s%s%n", file.name, code, Row.ranges(versions),
                    file.errors.containsKey(code) ? "" : "  (not listed)"));
        }
        if (!filtered) {
            Set<Short> without = new TreeSet<>();
            for (short version : file.versions) {
                total++;
                if (report.successes.containsKey(version)) {
                    covered++;
                } else {
                    without.add(version);
                }
            }
            gap(file, "success", without);
            file.errors.forEach((code, versions) -> {
                Set<Short> unseen = new TreeSet<>();
                for (short version : versions) {
                    total++;
                    if (report.errors.getOrDefault(code, Set.of()).contains(version)) {
                        covered++;
                    } else {
                        unseen.add(version);
                    }
                }
                gap(file, "error " + code, unseen);
            });
            Collection<Integer> unlisted = new TreeSet<>(report.errors.keySet());
            unlisted.removeAll(file.errors.keySet());
            unlisted.remove(-1); // a fault inside of Kafka is nothing to aim at; a mask says what Ottla answers
            if (!unlisted.isEmpty()) {
                failed++;
                System.out.printf("FAIL %s: error codes %s were seen but are not listed in the case file%n", file.name, unlisted);
            }
            if (!report.controlled) {
                failed++;
                System.out.printf("FAIL %s: no row in which a wrong field would be noticed%n", file.name);
            } else {
                passed++;
            }
        }
        System.out.printf("%s %s %s (%d rows)%n", bad == 0 ? "ok" : "not ok", file.name, Row.ranges(file.versions), report.rows);
        System.out.flush();
    }

    private void gap(Row.File file, String what, Set<Short> versions) {
        if (!versions.isEmpty()) {
            failed += versions.size();
            uncovered.add(file.name + " v" + Row.ranges(versions) + ": " + what);
        }
    }

    private static void delete(Path directory) throws IOException {
        try (var paths = Files.walk(directory)) {
            paths.sorted(java.util.Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }
}
