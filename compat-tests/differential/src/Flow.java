import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.message.ApiMessageType;

/** One row in one version against one target. */
final class Flow implements AutoCloseable {
    /** How long an answer may take where none is expected to be missing. */
    private static final int ANSWER_MS = 8_000;
    /** How long a state is waited for: a topic's leader, a coordinator, an {@code until}. */
    private static final int SETTLE_MS = 10_000;
    private static final Pattern VARIABLE = Pattern.compile("\\$([a-zA-Z]\\w*)");
    private static final Pattern WHOLE = Pattern.compile("\\$([a-zA-Z]\\w*)([+-]\\d+)?");
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
    private static final ObjectMapper MAPPER = Row.MAPPER;

    /** What one compared step came to. */
    record Outcome(String api, short version, JsonNode answer) {}

    private record Pending(Connection connection, ApiMessageType api, short version, int id) {}

    private final Target target;
    private final short version;
    private final Map<String, JsonNode> variables = new TreeMap<>();
    private final Map<String, Connection> connections = new HashMap<>();
    private final Map<String, Pending> pending = new HashMap<>();
    private final List<Outcome> outcomes = new ArrayList<>();

    Flow(Target target, Row row, short version, String unique) {
        this.target = target;
        this.version = version;
        variables.put("id", JSON.textNode(unique));
        variables.put("v", JSON.numberNode(version));
        variables.put("now", JSON.numberNode(Batches.NOW));
        variables.put("port", JSON.numberNode(target.port));
    }

    List<Outcome> run(Row row) throws IOException, InterruptedException {
        for (JsonNode step : row.setup) {
            step(row, step, true);
        }
        for (JsonNode step : row.steps) {
            step(row, step, false);
        }
        return outcomes;
    }

    private void step(Row row, JsonNode step, boolean setup) throws IOException, InterruptedException {
        if (step.path("from").asInt(0) > version || step.path("to").asInt(99) < version) {
            return;
        }
        if (step.has("topic")) {
            topic(step.get("topic"));
        } else if (step.has("produce")) {
            produce((ObjectNode) step.get("produce"));
        } else if (step.has("sleep")) {
            Thread.sleep(step.get("sleep").asInt());
        } else if (step.has("close")) {
            Connection gone = connections.remove(step.get("close").asText());
            if (gone != null) {
                gone.close();
            }
        } else if (step.has("await")) {
            Pending asked = pending.remove(step.get("await").asText());
            JsonNode answer = receive(asked, step);
            keep(step, asked.api, asked.version, answer, setup);
        } else if (step.has("raw")) {
            raw(row, step);
        } else {
            request(row, step, setup);
        }
    }

    private void request(Row row, JsonNode step, boolean setup) throws IOException, InterruptedException {
        String call = null;
        for (String key : (Iterable<String>) step::fieldNames) {
            if (Character.isUpperCase(key.charAt(0))) {
                call = key;
            } else if (!List.of("capture", "over", "until", "silent", "defer", "quiet", "claim", "client", "from", "to", "allow")
                    .contains(key)) {
                throw new Messages.Fault("unknown key " + key + " in a step of " + row.name);
            }
        }
        if (call == null) {
            throw new Messages.Fault("no request in a step of " + row.name + ": " + step);
        }
        String[] parts = call.split(" ");
        ApiMessageType api = Messages.api(parts[0]);
        short asked = parts.length > 1 && !parts[1].equals("v") ? Short.parseShort(parts[1]) : version;
        short layout = (short) Math.max(api.lowestSupportedVersion(), Math.min(asked, api.highestSupportedVersion(true)));
        short claimed = step.has("claim") ? (short) step.get("claim").asInt() : asked;
        long deadline = System.currentTimeMillis() + SETTLE_MS;
        for (int attempt = 0; ; attempt++) {
            JsonNode body = substitute(step.get(call).isNull() ? JSON.objectNode() : step.get(call));
            Connection connection = connection(step.path("over").asText("main"));
            int id = connection.send(api, layout, claimed, step.path("client").asText("differential"), body);
            Pending sent = new Pending(connection, api, claimed, id);
            if (step.has("defer")) {
                pending.put(step.get("defer").asText(), sent);
                return;
            }
            JsonNode answer = receive(sent, step);
            boolean settled = step.has("until") ? met(step.get("until"), answer) : !setup || step.has("allow") || good(answer);
            if (settled) {
                keep(step, api, claimed, answer, setup);
                return;
            }
            if (System.currentTimeMillis() > deadline || answer.has("outcome")) {
                throw new Messages.Fault((setup ? "setup" : "until") + ": " + call + " was answered " + shorten(answer));
            }
            if (answer.has("outcome")) {
                connections.remove(step.path("over").asText("main"));
            }
            Thread.sleep(Math.min(100, 5L << Math.min(attempt, 5)));
        }
    }

    private static String shorten(JsonNode answer) {
        String text = answer.toString();
        return text.length() < 400 ? text : text.substring(0, 400) + "…";
    }

    private void keep(JsonNode step, ApiMessageType api, short version, JsonNode answer, boolean setup) {
        if (step.has("capture")) {
            for (Map.Entry<String, JsonNode> entry : step.get("capture").properties()) {
                JsonNode value = at(answer, text(entry.getValue().asText()));
                if (value.isMissingNode()) {
                    throw new Messages.Fault("nothing to capture at " + entry.getValue().asText() + " in " + shorten(answer));
                }
                variables.put(entry.getKey(), value);
            }
        }
        if (!setup && !step.path("quiet").asBoolean()) {
            outcomes.add(new Outcome(Messages.name(api), version, generalise(answer)));
        }
    }

    /** Values that each side makes up itself are written as the variable they were captured in. */
    private JsonNode generalise(JsonNode node) {
        if (node.isObject()) {
            ObjectNode copy = JSON.objectNode();
            node.properties().forEach(e -> copy.set(
                    e.getKey(),
                    e.getKey().equals("port") && e.getValue().asInt() == target.port
                            ? JSON.textNode("$port")
                            : generalise(e.getValue())));
            return copy;
        }
        if (node.isArray()) {
            ArrayNode copy = JSON.arrayNode();
            node.forEach(item -> copy.add(generalise(item)));
            return copy;
        }
        for (Map.Entry<String, JsonNode> variable : variables.entrySet()) {
            boolean made = node.isTextual() && node.asText().length() >= 12 && !variable.getKey().equals("id")
                    || node.isNumber() && variable.getKey().endsWith("Id") && !variable.getKey().equals("id");
            if (made && node.asText().equals(variable.getValue().asText()) && !node.asText().equals("AAAAAAAAAAAAAAAAAAAAAA")
                    && !node.asText().equals("0") && !node.asText().equals("-1")) {
                return JSON.textNode("$" + variable.getKey());
            }
        }
        return node;
    }

    private JsonNode receive(Pending asked, JsonNode step) throws IOException {
        int timeout = step.path("silent").asInt(ANSWER_MS);
        ByteBuffer frame;
        try {
            frame = asked.connection.receive(timeout);
        } catch (SocketTimeoutException e) {
            return JSON.objectNode().put("outcome", "silence");
        }
        if (frame == null) {
            connections.values().remove(asked.connection);
            return JSON.objectNode().put("outcome", "closed");
        }
        try {
            return Messages.decode(asked.api, asked.version, frame, asked.id);
        } catch (RuntimeException e) {
            return JSON.objectNode().put("outcome", "undecodable: " + e);
        }
    }

    private void raw(Row row, JsonNode step) throws IOException {
        Connection connection = connection(step.path("over").asText("main"));
        connection.write(Messages.hex(step.get("raw").asText()));
        JsonNode answer;
        try {
            ByteBuffer frame = connection.receive(step.path("silent").asInt(ANSWER_MS));
            answer = frame == null
                    ? JSON.objectNode().put("outcome", "closed")
                    : JSON.objectNode().put("outcome", "answered").put("bytes", Batches.text(frame));
        } catch (SocketTimeoutException e) {
            answer = JSON.objectNode().put("outcome", "silence");
        }
        outcomes.add(new Outcome(row.apiName, version, answer));
    }

    // ---- preparations ----

    /** Creates a topic and waits until every partition answers; captures its id. */
    private void topic(JsonNode given) throws IOException, InterruptedException {
        ObjectNode wanted = given.isObject() ? (ObjectNode) substitute(given) : JSON.objectNode();
        String name = given.isObject() ? wanted.get("name").asText() : text(given.asText());
        int partitions = wanted.path("partitions").asInt(1);
        ObjectNode topic = JSON.objectNode();
        topic.put("name", name).put("numPartitions", partitions).put("replicationFactor", 1);
        ArrayNode configs = topic.putArray("configs");
        wanted.path("configs").properties().forEach(e -> configs.addObject().put("name", e.getKey()).put("value", e.getValue().asText()));
        ObjectNode create = JSON.objectNode().put("timeoutMs", 10_000);
        create.putArray("topics").add(topic);
        JsonNode answer = ask("CreateTopics", 7, create);
        if (!good(answer)) {
            throw new Messages.Fault("setup: topic " + name + " was answered " + shorten(answer));
        }
        variables.put(wanted.path("as").asText("topicId"), answer.at("/topics/0/topicId"));
        ObjectNode list = JSON.objectNode().put("replicaId", -1);
        ArrayNode indexes = list.putArray("topics").addObject().put("name", name).putArray("partitions");
        for (int p = 0; p < partitions; p++) {
            indexes.addObject().put("partitionIndex", p).put("timestamp", -1);
        }
        patiently("ListOffsets", 9, list);
    }

    private void produce(ObjectNode given) throws IOException, InterruptedException {
        ObjectNode wanted = (ObjectNode) substitute(given).deepCopy();
        ObjectNode produce = JSON.objectNode().put("acks", -1).put("timeoutMs", 5_000);
        ObjectNode topic = produce.putArray("topicData").addObject();
        topic.set("name", wanted.remove("topic"));
        int partition = wanted.has("partition") ? wanted.remove("partition").asInt() : 0;
        topic.putArray("partitionData").addObject().put("index", partition).set("records", wanted);
        patiently("Produce", 9, produce);
    }

    private void patiently(String api, int version, JsonNode body) throws IOException, InterruptedException {
        long deadline = System.currentTimeMillis() + SETTLE_MS;
        for (int attempt = 0; ; attempt++) {
            JsonNode answer = ask(api, version, body);
            if (good(answer)) {
                return;
            }
            if (System.currentTimeMillis() > deadline || answer.has("outcome")) {
                throw new Messages.Fault("setup: " + api + " was answered " + shorten(answer));
            }
            Thread.sleep(Math.min(100, 2L << Math.min(attempt, 6)));
        }
    }

    JsonNode ask(String name, int version, JsonNode body) throws IOException {
        ApiMessageType api = Messages.api(name);
        Connection connection = connection("setup");
        int id = connection.send(api, (short) version, (short) version, "differential", body);
        return receive(new Pending(connection, api, (short) version, id), JSON.objectNode());
    }

    private Connection connection(String name) throws IOException {
        Connection connection = connections.get(name);
        if (connection == null) {
            connection = target.connect();
            connections.put(name, connection);
        }
        return connection;
    }

    // ---- JSON ----

    private static boolean good(JsonNode answer) {
        return !answer.has("outcome") && Run.codes(answer).isEmpty();
    }

    private boolean met(JsonNode until, JsonNode answer) {
        for (Map.Entry<String, JsonNode> entry : until.properties()) {
            String wanted = text(entry.getValue().asText());
            String found = at(answer, text(entry.getKey())).asText();
            if (wanted.startsWith("!") ? found.equals(wanted.substring(1)) : !found.equals(wanted)) {
                return false;
            }
        }
        return true;
    }

    static JsonNode at(JsonNode node, String path) {
        JsonNode here = node;
        for (String step : path.split("\\.")) {
            if (here.isArray() && step.equals("size")) {
                return JSON.numberNode(here.size());
            }
            here = here.isArray() ? here.path(Integer.parseInt(step)) : here.path(step);
        }
        return here;
    }

    private JsonNode substitute(JsonNode node) {
        if (node.isObject()) {
            ObjectNode copy = JSON.objectNode();
            node.properties().forEach(e -> copy.set(text(e.getKey()), substitute(e.getValue())));
            return copy;
        }
        if (node.isArray()) {
            ArrayNode copy = JSON.arrayNode();
            node.forEach(item -> copy.add(substitute(item)));
            return copy;
        }
        if (!node.isTextual()) {
            return node;
        }
        Matcher whole = WHOLE.matcher(node.asText());
        if (whole.matches() && variables.containsKey(whole.group(1))) {
            JsonNode value = variables.get(whole.group(1));
            if (whole.group(2) == null) {
                return value;
            }
            if (value.isNumber()) {
                return JSON.numberNode(value.asLong() + Long.parseLong(whole.group(2)));
            }
        }
        return JSON.textNode(text(node.asText()));
    }

    private String text(String given) {
        if (given.indexOf('$') < 0) {
            return given;
        }
        Matcher matcher = VARIABLE.matcher(given);
        StringBuilder out = new StringBuilder();
        while (matcher.find()) {
            JsonNode value = variables.get(matcher.group(1));
            if (value == null) {
                throw new Messages.Fault("no variable $" + matcher.group(1));
            }
            matcher.appendReplacement(out, Matcher.quoteReplacement(value.asText()));
        }
        return matcher.appendTail(out).toString();
    }

    @Override
    public void close() {
        connections.values().forEach(Connection::close);
    }
}
