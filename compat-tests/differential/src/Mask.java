import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/**
 * A difference that is allowed, and why.
 *
 * <p>{@code at} is a path of an answer, {@code *} standing for one step and {@code **} for any
 * number. {@code as} says what is still compared: {@code any} nothing; {@code set} whether there is
 * a value (not null, empty, zero, −1); {@code more} the same, but the second side may have one where
 * Kafka has none; {@code sorted KEY} everything but the order of the list;
 * {@code only KEY TEXT} only the items of the list whose KEY begins with TEXT. With {@code kafka} and
 * {@code ottla} instead, exactly this pair of values is allowed.
 */
final class Mask {
    final String api;
    final String[] path;
    final String kind;
    final String key;
    final String text;
    final JsonNode kafka;
    final JsonNode ottla;
    final String why;
    final String at;

    private Mask(JsonNode json, String api) {
        this.api = json.path("api").asText(api);
        this.at = json.get("at").asText();
        // A step that holds dots itself is written in brackets: results.*.configs.(flush.messages).value
        this.path = at.split("\\.(?![^(]*\\))");
        for (int i = 0; i < path.length; i++) {
            path[i] = path[i].startsWith("(") ? path[i].substring(1, path[i].length() - 1) : path[i];
        }
        String[] as = json.path("as").asText("pair").split(" ", 3);
        this.kind = as[0];
        this.key = as.length > 1 ? as[1] : null;
        this.text = as.length > 2 ? as[2] : null;
        this.kafka = json.get("kafka");
        this.ottla = json.get("ottla");
        this.why = json.path("why").asText("");
        if (!Set.of("any", "set", "more", "sorted", "only", "pair").contains(kind) || why.isEmpty()) {
            throw new Messages.Fault("a mask needs a kind and a reason: " + json);
        }
        if (kind.equals("pair") && (kafka == null || ottla == null)) {
            throw new Messages.Fault("a mask needs `as`, or `kafka` and `ottla`: " + json);
        }
    }

    static List<Mask> list(JsonNode json, String api) {
        List<Mask> masks = new ArrayList<>();
        for (JsonNode item : json) {
            masks.add(new Mask(item, api));
        }
        return masks;
    }

    boolean covers(String api, List<String> path) {
        return (this.api.equals("*") || List.of(this.api.split(",")).contains(api)) && matches(0, path, 0);
    }

    private boolean matches(int i, List<String> given, int j) {
        if (i == path.length) {
            return j == given.size();
        }
        if (path[i].equals("**")) {
            return matches(i + 1, given, j) || j < given.size() && matches(i, given, j + 1);
        }
        return j < given.size()
                && (path[i].equals("*") || path[i].equals(given.get(j)))
                && matches(i + 1, given, j + 1);
    }
}
