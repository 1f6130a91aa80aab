import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.BinaryNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.record.internal.BaseRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Requests and responses of any API and version as JSON, by the classes that Kafka's client jar
 * generates from its message schemas.
 *
 * <p>A request may leave out any field: it gets the schema's default. A field that the version does
 * not have is dropped, so one row serves many versions; a field that no version has is an error.
 */
final class Messages {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
    private static final Map<String, ApiMessageType> BY_NAME = new TreeMap<>();

    static {
        for (ApiMessageType type : ApiMessageType.values()) {
            if (type.highestSupportedVersion(true) < type.lowestSupportedVersion()) {
                continue; // removed from Kafka, only the key is kept
            }
            BY_NAME.put(name(type).toLowerCase(Locale.ROOT), type);
            BY_NAME.put(Short.toString(type.apiKey()), type);
        }
    }

    private Messages() {}

    static final class Fault extends RuntimeException {
        private static final long serialVersionUID = 1;

        Fault(String message) {
            super(message);
        }
    }

    static ApiMessageType api(String name) {
        ApiMessageType type = BY_NAME.get(name.toLowerCase(Locale.ROOT));
        if (type == null) {
            throw new Fault("no API is called " + name);
        }
        return type;
    }

    /** The API's name as Kafka's documentation writes it: {@code CreateTopics}. */
    static String name(ApiMessageType type) {
        return type.newRequest().getClass().getSimpleName().replace("RequestData", "");
    }

    /**
     * Length, header and body. Where {@code claimedVersion} differs from {@code version} the header
     * names the former, while header and body are laid out as the latter.
     */
    static ByteBuffer frame(
            ApiMessageType api, short version, short claimedVersion, int correlation, String client, JsonNode body) {
        byte[] encoded = body.isBinary() ? binary(body) : encode(api, version, body);
        RequestHeaderData header = new RequestHeaderData()
                .setRequestApiKey(api.apiKey())
                .setRequestApiVersion(claimedVersion)
                .setCorrelationId(correlation)
                .setClientId(client);
        short headerVersion = api.requestHeaderVersion(version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int headerSize = header.size(cache, headerVersion);
        ByteBuffer frame = ByteBuffer.allocate(4 + headerSize + encoded.length);
        frame.putInt(headerSize + encoded.length);
        header.write(new ByteBufferAccessor(frame), cache, headerVersion);
        frame.put(encoded);
        return frame.flip();
    }

    private static byte[] binary(JsonNode node) {
        try {
            return node.binaryValue();
        } catch (java.io.IOException e) {
            throw new Fault(e.getMessage());
        }
    }

    static byte[] encode(ApiMessageType api, short version, JsonNode body) {
        Class<?> type = api.newRequest().getClass();
        JsonNode whole = complete(converter(type), type, body, version, type.getSimpleName());
        ApiMessage message = (ApiMessage) read(converter(type), whole, version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    /** The body behind a response header, as JSON, with record batches taken apart. */
    static JsonNode decode(ApiMessageType api, short version, ByteBuffer frame, int correlation) {
        // An ApiVersions request of an unknown version is answered with the layout of version 0.
        ResponseHeaderData header = new ResponseHeaderData();
        header.read(new ByteBufferAccessor(frame), api.responseHeaderVersion(version));
        if (header.correlationId() != correlation) {
            throw new Fault("correlation id " + header.correlationId() + " instead of " + correlation);
        }
        ApiMessage message = api.newResponse();
        int start = frame.position();
        if (api == ApiMessageType.API_VERSIONS && version > 0 && frame.remaining() >= 2 && frame.getShort(start) == 35) {
            version = 0;
        }
        message.read(new ByteBufferAccessor(frame), version);
        JsonNode json = write(converter(message.getClass()), message.getClass(), message, version);
        textForBytes(json);
        if (message instanceof FetchResponseData) {
            openRecords((FetchResponseData) message, json);
        }
        if (frame.hasRemaining()) {
            ((ObjectNode) json).put("bytesBehindTheBody", frame.remaining());
        }
        return json;
    }

    /** Bytes in answers are written as they may be given in requests. */
    private static void textForBytes(JsonNode node) {
        if (node instanceof ObjectNode) {
            ObjectNode object = (ObjectNode) node;
            for (Map.Entry<String, JsonNode> entry : object.properties()) {
                if (entry.getValue().isBinary()) {
                    entry.setValue(JSON.textNode(Batches.text(ByteBuffer.wrap(binary(entry.getValue())))));
                }
            }
        }
        for (JsonNode child : node) {
            textForBytes(child);
        }
    }

    /** Kafka's converters write record batches as nothing. */
    private static void openRecords(FetchResponseData message, JsonNode json) {
        for (int t = 0; t < message.responses().size(); t++) {
            JsonNode topic = json.get("responses").get(t);
            for (int p = 0; p < message.responses().get(t).partitions().size(); p++) {
                BaseRecords records = message.responses().get(t).partitions().get(p).records();
                ObjectNode partition = (ObjectNode) topic.get("partitions").get(p);
                partition.set("records", records == null ? null : Batches.open(((MemoryRecords) records).buffer()));
            }
        }
    }

    // ---- defaults ----

    private static JsonNode complete(Class<?> converter, Class<?> type, JsonNode given, short version, String path) {
        if (given.isNull()) {
            return given;
        }
        if (!given.isObject()) {
            throw new Fault(path + " must be an object, is " + given);
        }
        Object fresh;
        try {
            fresh = type.getConstructor().newInstance();
        } catch (ReflectiveOperationException e) {
            throw new Fault(type + ": " + e);
        }
        ObjectNode whole = defaults(converter, type, fresh, version, path);
        for (Map.Entry<String, JsonNode> entry : given.properties()) {
            String name = entry.getKey();
            Field field = field(type, name);
            if (field == null) {
                throw new Fault("no version of " + path + " has a field " + name);
            }
            if (!whole.has(name) && !tagged(type, name, version)) {
                continue;
            }
            whole.set(name, value(field.getGenericType(), field, entry.getValue(), version, path + "." + name));
        }
        return whole;
    }

    private static ObjectNode defaults(Class<?> converter, Class<?> type, Object fresh, short version, String path) {
        // A struct or array without a default of its own may refuse to be written while empty.
        try {
            return (ObjectNode) write(converter, type, fresh, version);
        } catch (Fault e) {
            throw new Fault(path + " in version " + version + ": " + e.getMessage());
        }
    }

    /** Whether this version has such a tagged field: these do not show among the defaults. */
    private static boolean tagged(Class<?> type, String name, short version) {
        try {
            Schema schema = ((Schema[]) type.getField("SCHEMAS").get(null))[version];
            BoundField tagged = schema == null ? null : schema.get("_tagged_fields");
            if (tagged == null) {
                return false;
            }
            String wanted = name.replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT);
            return ((TaggedFields) tagged.def.type).fields().values().stream().anyMatch(f -> f.name.equals(wanted));
        } catch (ReflectiveOperationException e) {
            throw new Fault(e.toString());
        }
    }

    private static Field field(Class<?> type, String name) {
        for (Field field : type.getDeclaredFields()) {
            if (field.getName().equals(name)) {
                return field;
            }
        }
        return null;
    }

    private static JsonNode value(Type generic, Field field, JsonNode given, short version, String path) {
        Class<?> raw = raw(generic);
        if (given.isNull()) {
            return given;
        }
        if (BaseRecords.class.isAssignableFrom(raw)) {
            return given.isTextual() ? bytes(given.textValue()) : new BinaryNode(Batches.build(given));
        }
        if (raw == byte[].class || raw == ByteBuffer.class) {
            return given.isTextual() ? bytes(given.textValue()) : given;
        }
        if (raw == String.class && given.isObject() && given.has("repeat")) {
            return JSON.textNode(given.get("repeat").asText().repeat(given.get("times").asInt()));
        }
        if (raw == String.class && given.isValueNode() && !given.isTextual()) {
            return JSON.textNode(given.asText());
        }
        if (raw != String.class && raw != Uuid.class && given.isTextual() && raw.isPrimitive()) {
            return number(given.textValue());
        }
        if (Collection.class.isAssignableFrom(raw)) {
            Type element = element(generic);
            ArrayNode array = JSON.arrayNode();
            if (given.isObject() && given.has("repeat")) {
                for (int i = 0; i < given.get("times").asInt(); i++) {
                    array.add(value(element, field, given.get("repeat"), version, path + "[" + i + "]"));
                }
                return array;
            }
            int i = 0;
            for (JsonNode item : given) {
                array.add(value(element, field, item, version, path + "[" + i++ + "]"));
            }
            return array;
        }
        if (raw.getName().startsWith("org.apache.kafka.common.message.")) {
            return complete(converter(raw), raw, given, version, path);
        }
        return given;
    }

    private static JsonNode number(String text) {
        if (text.equals("true") || text.equals("false")) {
            return JSON.booleanNode(Boolean.parseBoolean(text));
        }
        try {
            long value = Long.parseLong(text);
            return value == (int) value ? JSON.numberNode((int) value) : JSON.numberNode(value);
        } catch (NumberFormatException e) {
            throw new Fault("not a number: " + text);
        }
    }

    /** {@code hex:…} and {@code base64:…} are what they say; any other text is taken as UTF-8. */
    static BinaryNode bytes(String text) {
        if (text.startsWith("hex:")) {
            return new BinaryNode(hex(text.substring(4)));
        }
        if (text.startsWith("base64:")) {
            return new BinaryNode(java.util.Base64.getDecoder().decode(text.substring(7)));
        }
        return new BinaryNode(text.getBytes(StandardCharsets.UTF_8));
    }

    static byte[] hex(String text) {
        String digits = text.replaceAll("\\s", "");
        byte[] bytes = new byte[digits.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(digits.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }

    private static Class<?> raw(Type type) {
        return type instanceof ParameterizedType ? (Class<?>) ((ParameterizedType) type).getRawType() : (Class<?>) type;
    }

    private static Type element(Type collection) {
        if (collection instanceof ParameterizedType) {
            return ((ParameterizedType) collection).getActualTypeArguments()[0];
        }
        return element(((Class<?>) collection).getGenericSuperclass());
    }

    // ---- Kafka's generated converters ----

    private static Class<?> converter(Class<?> type) {
        String name = type.getName();
        int nested = name.indexOf('$');
        String converter = nested < 0
                ? name + "JsonConverter"
                : name.substring(0, nested) + "JsonConverter$" + name.substring(nested + 1) + "JsonConverter";
        try {
            return Class.forName(converter);
        } catch (ClassNotFoundException e) {
            throw new Fault("no converter " + converter);
        }
    }

    private static JsonNode write(Class<?> converter, Class<?> type, Object message, short version) {
        boolean hasRecords = Arrays.stream(converter.getMethods())
                .anyMatch(m -> m.getName().equals("write") && m.getParameterCount() == 3);
        try {
            if (hasRecords) {
                return (JsonNode) converter
                        .getMethod("write", type, short.class, boolean.class)
                        .invoke(null, message, version, true);
            }
            return (JsonNode) converter.getMethod("write", type, short.class).invoke(null, message, version);
        } catch (InvocationTargetException e) {
            throw new Fault(String.valueOf(e.getCause()));
        } catch (ReflectiveOperationException e) {
            throw new Fault(e.toString());
        }
    }

    private static Object read(Class<?> converter, JsonNode json, short version) {
        try {
            Method read = converter.getMethod("read", JsonNode.class, short.class);
            return read.invoke(null, json, version);
        } catch (InvocationTargetException e) {
            throw new Fault(String.valueOf(e.getCause().getMessage()));
        } catch (ReflectiveOperationException e) {
            throw new Fault(e.toString());
        }
    }

}
