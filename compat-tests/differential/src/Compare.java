import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Two answers to the same request, field by field. */
final class Compare {
    /** A field in which they differ. */
    record Difference(String path, String kafka, String ottla) {}

    private final List<Mask> masks;
    private final Set<Mask> used = ConcurrentHashMap.newKeySet();

    Compare(List<Mask> masks) {
        this.masks = masks;
    }

    Set<Mask> used() {
        return used;
    }

    List<Difference> differences(String api, Row row, String unique, JsonNode kafka, JsonNode ottla) {
        List<Difference> found = new ArrayList<>();
        walk(new Side(api, row, unique), new ArrayList<>(), kafka, ottla, found);
        return found;
    }

    private record Side(String api, Row row, String unique) {}

    private Mask mask(Side side, List<String> path, Set<String> kinds) {
        for (List<Mask> list : List.of(side.row.masks, masks)) {
            for (Mask mask : list) {
                if (kinds.contains(mask.kind) && mask.covers(side.api, path)) {
                    return mask;
                }
            }
        }
        return null;
    }

    private void walk(Side side, List<String> path, JsonNode kafka, JsonNode ottla, List<Difference> found) {
        Mask mask = mask(side, path, Set.of("any", "set", "more"));
        boolean captured = kafka.asText().startsWith("$") || ottla.asText().startsWith("$");
        if (mask != null && !captured) {
            if (mask.kind.equals("any")
                    || isSet(kafka) == isSet(ottla)
                    || mask.kind.equals("more") && !isSet(kafka)) {
                used.add(mask);
                return;
            }
            report(side, path, kafka, ottla, found);
            return;
        }
        if (kafka.isObject() && ottla.isObject()) {
            Set<String> names = new LinkedHashSet<>();
            kafka.fieldNames().forEachRemaining(names::add);
            ottla.fieldNames().forEachRemaining(names::add);
            for (String name : names) {
                path.add(name);
                walk(side, path, or(kafka.get(name)), or(ottla.get(name)), found);
                path.remove(path.size() - 1);
            }
        } else if (kafka.isArray() && ottla.isArray()) {
            lists(side, path, kafka, ottla, found);
        } else if (!kafka.equals(ottla) && !kafka.asText().equals(ottla.asText())
                || kafka.isNull() != ottla.isNull()) {
            report(side, path, kafka, ottla, found);
        }
    }

    private void lists(Side side, List<String> path, JsonNode kafka, JsonNode ottla, List<Difference> found) {
        Mask only = mask(side, path, Set.of("only"));
        if (only != null) {
            kafka = filter(only, side.unique, kafka);
            ottla = filter(only, side.unique, ottla);
            used.add(only);
        }
        Mask sorted = mask(side, path, Set.of("sorted"));
        if (sorted != null) {
            used.add(sorted);
            if (sorted.key != null) {
                byKey(side, sorted.key, path, kafka, ottla, found);
                return;
            }
            kafka = sort(kafka);
            ottla = sort(ottla);
        }
        if (kafka.size() != ottla.size()) {
            path.add("size");
            report(side, path, number(kafka.size()), number(ottla.size()), found);
            path.remove(path.size() - 1);
        }
        for (int i = 0; i < Math.min(kafka.size(), ottla.size()); i++) {
            path.add(Integer.toString(i));
            walk(side, path, kafka.get(i), ottla.get(i), found);
            path.remove(path.size() - 1);
        }
    }

    /** Items are matched by their key, so that one that is missing does not shift the others. */
    private void byKey(
            Side side, String key, List<String> path, JsonNode kafka, JsonNode ottla, List<Difference> found) {
        Set<String> keys = new java.util.TreeSet<>();
        kafka.forEach(item -> keys.add(item.path(key).asText()));
        ottla.forEach(item -> keys.add(item.path(key).asText()));
        for (String k : keys) {
            List<JsonNode> left = all(kafka, key, k);
            List<JsonNode> right = all(ottla, key, k);
            for (int i = 0; i < Math.max(left.size(), right.size()); i++) {
                path.add(k.isEmpty() ? "(empty)" : k);
                walk(side, path, or(i < left.size() ? left.get(i) : null), or(i < right.size() ? right.get(i) : null), found);
                path.remove(path.size() - 1);
            }
        }
    }

    private static List<JsonNode> all(JsonNode list, String key, String value) {
        List<JsonNode> items = new ArrayList<>();
        list.forEach(item -> {
            if (item.path(key).asText().equals(value)) {
                items.add(item);
            }
        });
        return items;
    }

    private void report(Side side, List<String> path, JsonNode kafka, JsonNode ottla, List<Difference> found) {
        for (List<Mask> list : List.of(side.row.masks, masks)) {
            for (Mask mask : list) {
                if (mask.kind.equals("pair")
                        && mask.covers(side.api, path)
                        && mask.kafka.asText().equals(kafka.asText())
                        && mask.ottla.asText().equals(ottla.asText())) {
                    used.add(mask);
                    return;
                }
            }
        }
        found.add(new Difference(
                String.join(".", path).replace(side.unique, "$id"),
                text(kafka).replace(side.unique, "$id"),
                text(ottla).replace(side.unique, "$id")));
    }

    private static String text(JsonNode node) {
        String text = node.isMissingNode() ? "(absent)" : node.toString();
        return text.length() <= 160 ? text : text.substring(0, 160) + "…";
    }

    private static JsonNode or(JsonNode node) {
        return node == null ? com.fasterxml.jackson.databind.node.MissingNode.getInstance() : node;
    }

    private static JsonNode number(int value) {
        return JsonNodeFactory.instance.numberNode(value);
    }

    private static ArrayNode sort(JsonNode list) {
        List<JsonNode> items = new ArrayList<>();
        list.forEach(items::add);
        items.sort(Comparator.comparing(JsonNode::toString));
        return JsonNodeFactory.instance.arrayNode().addAll(items);
    }

    private static ArrayNode filter(Mask only, String unique, JsonNode list) {
        ArrayNode kept = JsonNodeFactory.instance.arrayNode();
        List<String> texts = List.of(only.text.replace("$id", unique).split("\\|"));
        for (JsonNode item : list) {
            String value = item.path(only.key).asText();
            boolean keep = false;
            for (String text : texts) {
                keep |= text.endsWith("$") ? value.equals(text.substring(0, text.length() - 1)) : value.startsWith(text);
            }
            if (keep) {
                kept.add(item);
            }
        }
        return kept;
    }

    private static boolean isSet(JsonNode node) {
        if (node.isNull() || node.isMissingNode()) {
            return false;
        }
        if (node.isContainerNode()) {
            return !node.isEmpty();
        }
        if (node.isNumber()) {
            return node.asLong() != 0 && node.asLong() != -1;
        }
        return !node.asText().isEmpty() && !node.asText().equals("AAAAAAAAAAAAAAAAAAAAAA");
    }

    // ---- the control: would a wrong field be noticed? ----

    /** Every leaf of an answer, as a path to it. */
    static List<List<String>> leaves(JsonNode node) {
        List<List<String>> leaves = new ArrayList<>();
        leaves(node, new ArrayList<>(), leaves);
        return leaves;
    }

    private static void leaves(JsonNode node, List<String> path, List<List<String>> leaves) {
        if (node.isObject()) {
            node.properties().forEach(entry -> {
                path.add(entry.getKey());
                leaves(entry.getValue(), path, leaves);
                path.remove(path.size() - 1);
            });
        } else if (node.isArray()) {
            for (int i = 0; i < node.size(); i++) {
                path.add(Integer.toString(i));
                leaves(node.get(i), path, leaves);
                path.remove(path.size() - 1);
            }
        } else if (!path.isEmpty()) {
            leaves.add(List.copyOf(path));
        }
    }

    /** A copy of the answer in which this leaf is wrong. */
    static JsonNode corrupt(JsonNode node, List<String> leaf) {
        JsonNode copy = node.deepCopy();
        JsonNode parent = copy;
        for (String step : leaf.subList(0, leaf.size() - 1)) {
            parent = parent.isArray() ? parent.get(Integer.parseInt(step)) : parent.get(step);
        }
        String last = leaf.get(leaf.size() - 1);
        JsonNodeFactory json = JsonNodeFactory.instance;
        JsonNode old = parent.isArray() ? parent.get(Integer.parseInt(last)) : parent.get(last);
        JsonNode wrong = old.isBoolean()
                ? json.booleanNode(!old.asBoolean())
                : old.isNumber() ? json.numberNode(old.asLong() + 1) : json.textNode(old.asText() + "?");
        if (parent instanceof ArrayNode array) {
            array.set(Integer.parseInt(last), wrong);
        } else {
            ((ObjectNode) parent).set(last, wrong);
        }
        return copy;
    }
}
