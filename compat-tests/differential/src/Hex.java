import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.CompactArrayOf;
import org.apache.kafka.common.protocol.types.NullableSchema;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.utils.internals.ByteUtils;

/** Frames as bytes, field by field, by the schemas of Kafka's client jar. */
final class Hex {
    /** A field without parts: where it is, its bytes (the first {@code prefix} of them say its length), its value. */
    record Leaf(String parent, String name, byte[] bytes, int prefix, String value) {
        byte[] content() {
            return java.util.Arrays.copyOfRange(bytes, prefix, bytes.length);
        }

        String path() {
            return parent.isEmpty() ? name : parent + "." + name;
        }
    }

    /** Header fields of a batch behind its base offset; what is left are its records. */
    private static final Object[][] BATCH = {
        {"baseOffset", 8}, {"batchLength", 4}, {"partitionLeaderEpoch", 4}, {"magic", 1}, {"crc", 4}, {"attributes", 2},
        {"lastOffsetDelta", 4}, {"baseTimestamp", 8}, {"maxTimestamp", 8}, {"producerId", 8}, {"producerEpoch", 2},
        {"baseSequence", 4}, {"count", 4}
    };

    private final ByteBuffer in;
    private final List<Leaf> leaves = new ArrayList<>();

    private Hex(ByteBuffer in) {
        this.in = in;
    }

    /** A request frame with its length. */
    static List<Leaf> request(ApiMessageType api, short version, ByteBuffer frame) {
        Hex hex = new Hex(frame.duplicate());
        hex.leaf("", "size", Type.INT32);
        hex.schema("", RequestHeaderData.SCHEMAS[api.requestHeaderVersion(version)]);
        hex.schema("", api.requestSchemas()[version]);
        return hex.whole();
    }

    /** A response frame without its length; the length is added. */
    static List<Leaf> response(ApiMessageType api, short version, ByteBuffer frame) {
        ByteBuffer sized = ByteBuffer.allocate(4 + frame.remaining());
        sized.putInt(frame.remaining()).put(frame.duplicate()).flip();
        Hex hex = new Hex(sized);
        hex.leaf("", "size", Type.INT32);
        hex.schema("", ResponseHeaderData.SCHEMAS[api.responseHeaderVersion(version)]);
        // An unknown version of ApiVersions is answered in version 0.
        boolean old = api == ApiMessageType.API_VERSIONS && sized.getShort(sized.position()) == 35;
        hex.schema("", api.responseSchemas()[old ? 0 : version]);
        return hex.whole();
    }

    /** A line per few fields, each behind {@code mark}, with the fields' names and values as comment. */
    static String text(String mark, List<Leaf> leaves) {
        StringBuilder text = new StringBuilder();
        StringBuilder bytes = new StringBuilder();
        StringBuilder words = new StringBuilder();
        for (int i = 0; i < leaves.size(); i++) {
            Leaf leaf = leaves.get(i);
            bytes.append(' ').append(of(leaf.bytes));
            words.append(' ').append(leaf.name).append('=').append(leaf.value);
            boolean last = i + 1 == leaves.size();
            if (last || bytes.length() > 60 || !leaves.get(i + 1).parent.equals(leaf.parent)) {
                String parent = leaf.parent.isEmpty() ? "" : " " + leaf.parent;
                text.append(String.format("%s%-40s #%s:%s%n", mark, bytes, parent, words));
                bytes.setLength(0);
                words.setLength(0);
            }
        }
        return text.toString();
    }

    static String of(byte[] bytes) {
        StringBuilder hex = new StringBuilder();
        for (byte b : bytes) {
            hex.append(String.format("%02x", b));
        }
        return hex.toString();
    }

    private List<Leaf> whole() {
        if (in.hasRemaining()) {
            add("", "behindTheBody", in.position(), in.limit(), 0, "");
        }
        return leaves;
    }

    private void schema(String parent, Schema schema) {
        for (BoundField field : schema.fields()) {
            field(parent, camel(field.def.name), field.def.type);
        }
    }

    private void field(String parent, String name, Type type) {
        Optional<Type> element = type.arrayElementType();
        String path = parent.isEmpty() ? name : parent + "." + name;
        int start = in.position();
        if (type instanceof NullableSchema) {
            boolean there = in.get() >= 0;
            add(parent, name, start, start + 1, 0, there ? "there" : "null");
            if (there) {
                schema(path, (Schema) type);
            }
        } else if (type instanceof Schema) {
            schema(path, (Schema) type);
        } else if (element.isPresent()) {
            int count = type instanceof CompactArrayOf ? ByteUtils.readUnsignedVarint(in) - 1 : in.getInt();
            add(parent, name, start, in.position(), 0, count < 0 ? "null" : "[" + count + "]");
            for (int i = 0; i < count; i++) {
                if (element.get() instanceof Schema) {
                    schema(path + "[" + i + "]", (Schema) element.get());
                } else {
                    field(path, "[" + i + "]", element.get());
                }
            }
        } else if (type.toString().contains("RECORDS")) {
            records(parent, name, type);
        } else {
            leaf(parent, name, type);
        }
    }

    private void leaf(String parent, String name, Type type) {
        int start = in.position();
        Object value = type.read(in);
        int prefix = 0;
        String shown = String.valueOf(value);
        if (value instanceof String) {
            prefix = in.position() - start - ((String) value).getBytes(java.nio.charset.StandardCharsets.UTF_8).length;
            shown = '"' + shown + '"';
        } else if (value instanceof ByteBuffer || value instanceof byte[]) {
            int length = value instanceof byte[] ? ((byte[]) value).length : ((ByteBuffer) value).remaining();
            prefix = in.position() - start - length;
            shown = length + " bytes";
        } else if (type instanceof TaggedFields) {
            shown = ((java.util.Map<?, ?>) value).isEmpty() ? "{}" : ((java.util.Map<?, ?>) value).keySet().toString();
        }
        add(parent, name, start, in.position(), prefix, shown);
    }

    private void records(String parent, String name, Type type) {
        int start = in.position();
        boolean compact = type.toString().contains("COMPACT");
        int length = compact ? ByteUtils.readUnsignedVarint(in) - 1 : in.getInt();
        add(parent, name, start, in.position(), 0, length < 0 ? "null" : length + " bytes");
        int end = in.position() + Math.max(length, 0);
        String path = parent + "." + name;
        if (length >= 61) {
            for (Object[] part : BATCH) {
                int at = in.position();
                int size = (int) part[1];
                long value = 0;
                for (int i = 0; i < size; i++) {
                    value = value << 8 | in.get(at + i) & 0xff;
                }
                in.position(at + size);
                add(path, (String) part[0], at, at + size, 0, Long.toString(value << 64 - 8 * size >> 64 - 8 * size));
            }
        }
        if (in.position() < end) {
            add(path, "records", in.position(), end, 0, (end - in.position()) + " bytes");
            in.position(end);
        }
    }

    private void add(String parent, String name, int start, int end, int prefix, String value) {
        byte[] bytes = new byte[end - start];
        in.get(start, bytes);
        leaves.add(new Leaf(parent, name, bytes, prefix, value));
    }

    /** {@code error_code} is {@code errorCode} in Kafka's message schemas; a leading {@code _} is dropped. */
    private static String camel(String name) {
        StringBuilder camel = new StringBuilder();
        boolean upper = false;
        for (char c : (name.startsWith("_") ? name.substring(1) : name).toCharArray()) {
            if (c == '_') {
                upper = true;
            } else {
                camel.append(upper ? Character.toUpperCase(c) : c);
                upper = false;
            }
        }
        return camel.toString();
    }
}
