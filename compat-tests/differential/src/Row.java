import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.message.ApiMessageType;
import org.yaml.snakeyaml.LoaderOptions;
import org.yaml.snakeyaml.Yaml;

/** A row of a case file: what is prepared, what is asked, in which versions. */
final class Row {
    static final ObjectMapper MAPPER = new ObjectMapper();

    final ApiMessageType api;
    final String apiName;
    final int number;
    final String name;
    final Set<Short> versions;
    final List<JsonNode> setup = new ArrayList<>();
    final List<JsonNode> steps = new ArrayList<>();
    /** Error codes that Apache Kafka's answers must hold, taken together; {@code null} if not stated. */
    final Set<Integer> expect;
    final List<Mask> masks;

    private Row(File file, int number, JsonNode json) {
        this.api = file.api;
        this.apiName = file.name;
        this.number = number;
        this.name = json.path("row").asText("");
        if (name.isEmpty()) {
            throw new Messages.Fault(file.name + ": a row without a name: " + json);
        }
        for (Map.Entry<String, JsonNode> entry : json.properties()) {
            if (!Set.of("row", "versions", "setup", "send", "steps", "expect", "mask", "silent", "claim", "until")
                    .contains(entry.getKey())) {
                throw new Messages.Fault(file.name + " row " + name + ": unknown key " + entry.getKey());
            }
        }
        this.versions = json.has("versions") ? versions(json.get("versions").asText()) : file.versions;
        json.path("setup").forEach(setup::add);
        json.path("steps").forEach(steps::add);
        if (steps.isEmpty()) {
            com.fasterxml.jackson.databind.node.ObjectNode step = MAPPER.createObjectNode();
            step.set(file.name + " v", json.has("send") ? json.get("send") : MAPPER.createObjectNode());
            for (String key : List.of("silent", "claim", "until")) {
                if (json.has(key)) {
                    step.set(key, json.get(key));
                }
            }
            steps.add(step);
        }
        if (json.has("expect")) {
            expect = new TreeSet<>();
            JsonNode given = json.get("expect");
            if (given.isArray()) {
                given.forEach(code -> expect.add(code.asInt()));
            } else {
                expect.add(given.asInt());
            }
            expect.remove(0);
        } else {
            expect = null;
        }
        this.masks = Mask.list(json.path("mask"), "*");
    }

    /** {@code "0-3,7"}. */
    static Set<Short> versions(String text) {
        Set<Short> set = new TreeSet<>();
        for (String part : text.split(",")) {
            String[] ends = part.trim().split("-");
            for (short v = Short.parseShort(ends[0]); v <= Short.parseShort(ends[ends.length - 1]); v++) {
                set.add(v);
            }
        }
        return set;
    }

    static String ranges(Set<Short> versions) {
        StringBuilder text = new StringBuilder();
        Short first = null;
        Short last = null;
        for (Short v : versions) {
            if (last != null && v == last + 1) {
                last = v;
                continue;
            }
            append(text, first, last);
            first = v;
            last = v;
        }
        append(text, first, last);
        return text.toString();
    }

    private static void append(StringBuilder text, Short first, Short last) {
        if (first != null) {
            text.append(text.length() == 0 ? "" : ",").append(first);
            text.append(first.equals(last) ? "" : "-" + last);
        }
    }

    /** One case file: an API, the versions that must be answered, the error codes that must be seen. */
    static final class File {
        final ApiMessageType api;
        final String name;
        final Set<Short> versions;
        final Map<Integer, Set<Short>> errors = new TreeMap<>();
        final List<Row> rows = new ArrayList<>();

        File(Path path, String name, Set<Short> versions) throws IOException {
            this.api = Messages.api(name);
            this.name = name;
            this.versions = versions;
            JsonNode json = yaml(path);
            for (Map.Entry<String, JsonNode> entry : json.path("errors").properties()) {
                String range = entry.getValue().asText();
                errors.put(Integer.parseInt(entry.getKey()), range.equals("all") ? versions : versions(range));
            }
            int number = 0;
            for (JsonNode row : json.get("rows")) {
                rows.add(new Row(this, number++, row));
            }
            for (JsonNode row : everywhere(this)) {
                rows.add(new Row(this, number++, row));
            }
        }
    }

    /** What every API is asked: versions that it does not have, and a body that is not there. */
    private static List<JsonNode> everywhere(File file) {
        List<JsonNode> rows = new ArrayList<>();
        short low = file.versions.iterator().next();
        if (low > 0) {
            rows.add(MAPPER.createObjectNode()
                    .put("row", "a version before the first")
                    .put("claim", low - 1)
                    .put("versions", Short.toString(low)));
        }
        rows.add(MAPPER.createObjectNode()
                .put("row", "a version after the last")
                .put("claim", 99)
                .put("versions", Short.toString(new java.util.ArrayDeque<>(file.versions).getLast())));
        Set<Short> some = new TreeSet<>(file.versions);
        some.removeIf(version -> Messages.encode(file.api, version, MAPPER.createObjectNode()).length == 0);
        rows.add(MAPPER.createObjectNode()
                .put("row", "no body")
                .put("versions", ranges(some))
                .put("send", new byte[0]));
        return rows;
    }

    static JsonNode yaml(Path path) throws IOException {
        LoaderOptions options = new LoaderOptions();
        options.setMaxAliasesForCollections(10_000);
        try (Reader reader = Files.newBufferedReader(path)) {
            return MAPPER.valueToTree(new Yaml(options).load(reader));
        } catch (org.yaml.snakeyaml.error.YAMLException e) {
            throw new Messages.Fault(path.getFileName() + ": " + e.getMessage());
        }
    }
}
