import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.zip.CRC32C;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;
import org.apache.kafka.common.utils.internals.ByteUtils;

/**
 * Record batches from a short notation, well-formed or broken on purpose, and back.
 *
 * <pre>
 * {records: [a, {key: k, value: null, headers: {h: x}, timestamp: 5}], codec: gzip,
 *  producerId: 7, producerEpoch: 0, baseSequence: 0, transactional: true, control: true,
 *  appendTime: true, baseOffset: 0, partitionLeaderEpoch: -1,
 *  set: {count: 9, …},         fields of the header that are to lie (below); crc is computed after them
 *  payload: hex:…, cut: 3, append: hex:…, magic: 1}
 * </pre>
 *
 * A list of such objects is several batches in a row. A timestamp below 10^12 is counted from {@link
 * #NOW}, {@code exactly: N} is N. {@code set} knows: baseOffset length partitionLeaderEpoch magic crc attributes
 * lastOffsetDelta baseTimestamp maxTimestamp producerId producerEpoch baseSequence count. {@code
 * repeat: N} in a record makes N of it.
 */
final class Batches {
    /** One time for every side, so that timestamps can be compared. */
    static final long NOW = System.currentTimeMillis();

    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    private Batches() {}

    static byte[] build(JsonNode notation) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        if (notation.isArray()) {
            for (JsonNode batch : notation) {
                out.writeBytes(build(batch));
            }
            return out.toByteArray();
        }
        if (notation.isTextual()) {
            throw new Messages.Fault("a batch is an object, not " + notation);
        }
        if (notation.has("magic") && notation.get("magic").asInt() < 2) {
            return old(notation);
        }
        return batch(notation);
    }

    private static long timestamp(JsonNode record, int index) {
        JsonNode given = record.get("timestamp");
        if (given == null) {
            return NOW + index;
        }
        if (given.isObject()) {
            return given.get("exactly").asLong();
        }
        return given.asLong() < 1_000_000_000_000L ? NOW + given.asLong() : given.asLong();
    }

    private static byte[] bytes(JsonNode value) {
        if (value == null || value.isNull()) {
            return null;
        }
        if (value.isObject()) {
            return value.get("text").asText().repeat(value.get("times").asInt()).getBytes(StandardCharsets.UTF_8);
        }
        return Messages.bytes(value.asText()).binaryValue();
    }

    private static ArrayNode list(JsonNode notation) {
        ArrayNode list = JSON.arrayNode();
        if (notation.has("records")) {
            for (JsonNode given : notation.get("records")) {
                JsonNode record = given.isObject() ? given : JSON.objectNode().set("value", given);
                int times = record.has("repeat") ? record.get("repeat").asInt() : 1;
                for (int i = 0; i < times; i++) {
                    list.add(record);
                }
            }
        }
        return list;
    }

    private static byte[] batch(JsonNode notation) {
        ArrayNode records = list(notation);
        long base = records.isEmpty() ? NOW : timestamp(records.get(0), 0);
        long max = base;
        ByteArrayOutputStream plain = new ByteArrayOutputStream();
        for (int i = 0; i < records.size(); i++) {
            long timestamp = timestamp(records.get(i), i);
            max = Math.max(max, timestamp);
            byte[] body = record(records.get(i), i, timestamp - base);
            JsonNode lie = records.get(i).get("length");
            varint(plain, lie == null ? body.length : lie.asInt());
            plain.writeBytes(body);
        }
        String codec = notation.has("codec") ? notation.get("codec").asText() : "none";
        byte[] payload = notation.has("payload")
                ? Messages.bytes(notation.get("payload").asText()).binaryValue()
                : compress(codec, plain.toByteArray());
        int attributes = CompressionType.forName(codec).id
                | (flag(notation, "appendTime") ? 8 : 0)
                | (flag(notation, "transactional") ? 16 : 0)
                | (flag(notation, "control") ? 32 : 0);
        JsonNode set = notation.has("set") ? notation.get("set") : JSON.objectNode();
        ByteBuffer b = ByteBuffer.allocate(61 + payload.length);
        b.putLong(number(set, "baseOffset", number(notation, "baseOffset", 0)));
        b.putInt((int) number(set, "length", 49 + payload.length));
        b.putInt((int) number(set, "partitionLeaderEpoch", number(notation, "partitionLeaderEpoch", -1)));
        b.put((byte) number(set, "magic", 2));
        b.putInt(0);
        b.putShort((short) number(set, "attributes", attributes));
        b.putInt((int) number(set, "lastOffsetDelta", records.size() - 1));
        b.putLong(number(set, "baseTimestamp", base));
        b.putLong(number(set, "maxTimestamp", max));
        b.putLong(number(set, "producerId", number(notation, "producerId", -1)));
        b.putShort((short) number(set, "producerEpoch", number(notation, "producerEpoch", -1)));
        b.putInt((int) number(set, "baseSequence", number(notation, "baseSequence", -1)));
        b.putInt((int) number(set, "count", records.size()));
        b.put(payload);
        CRC32C crc = new CRC32C();
        crc.update(b.array(), 21, b.capacity() - 21);
        b.putInt(17, (int) number(set, "crc", crc.getValue()));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(b.array(), 0, b.capacity() - (int) number(notation, "cut", 0));
        if (notation.has("append")) {
            out.writeBytes(Messages.bytes(notation.get("append").asText()).binaryValue());
        }
        return out.toByteArray();
    }

    private static byte[] record(JsonNode record, int index, long timestampDelta) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write((int) number(record, "attributes", 0));
        varlong(out, number(record, "timestampDelta", timestampDelta));
        varint(out, (int) number(record, "offsetDelta", index));
        field(out, bytes(record.get("key")), record.get("keyLength"));
        field(out, bytes(record.get("value")), record.get("valueLength"));
        JsonNode headers = record.has("headers") ? record.get("headers") : JSON.objectNode();
        varint(out, (int) number(record, "headerCount", headers.size()));
        for (Map.Entry<String, JsonNode> header : headers.properties()) {
            field(out, header.getKey().equals("null") ? null : header.getKey().getBytes(StandardCharsets.UTF_8), null);
            field(out, bytes(header.getValue()), null);
        }
        if (record.has("append")) {
            out.writeBytes(Messages.bytes(record.get("append").asText()).binaryValue());
        }
        return out.toByteArray();
    }

    private static byte[] old(JsonNode notation) {
        byte magic = (byte) notation.get("magic").asInt();
        String codec = notation.has("codec") ? notation.get("codec").asText() : "none";
        MemoryRecordsBuilder builder = MemoryRecords.builder(
                ByteBuffer.allocate(1024),
                magic,
                Compression.of(codec).build(),
                magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME,
                number(notation, "baseOffset", 0));
        ArrayNode records = list(notation);
        for (int i = 0; i < records.size(); i++) {
            JsonNode r = records.get(i);
            builder.append(magic == 0 ? -1 : timestamp(r, i), bytes(r.get("key")), bytes(r.get("value")));
        }
        ByteBuffer buffer = builder.build().buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static byte[] compress(String codec, byte[] plain) {
        if (codec.equals("none")) {
            return plain;
        }
        ByteBufferOutputStream out = new ByteBufferOutputStream(Math.max(512, plain.length));
        try (OutputStream stream = Compression.of(codec).build().wrapForOutput(out, (byte) 2)) {
            stream.write(plain);
        } catch (java.io.IOException e) {
            throw new Messages.Fault(e.toString());
        }
        ByteBuffer buffer = out.buffer().flip();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static boolean flag(JsonNode node, String name) {
        return node.has(name) && node.get(name).asBoolean();
    }

    private static long number(JsonNode node, String name, long otherwise) {
        return node.has(name) ? Long.decode(node.get(name).asText()) : otherwise;
    }

    private static void field(ByteArrayOutputStream out, byte[] bytes, JsonNode lie) {
        varint(out, lie != null ? lie.asInt() : bytes == null ? -1 : bytes.length);
        if (bytes != null) {
            out.writeBytes(bytes);
        }
    }

    private static void varint(ByteArrayOutputStream out, int value) {
        ByteBuffer b = ByteBuffer.allocate(5);
        ByteUtils.writeVarint(value, b);
        out.write(b.array(), 0, b.position());
    }

    private static void varlong(ByteArrayOutputStream out, long value) {
        ByteBuffer b = ByteBuffer.allocate(10);
        ByteUtils.writeVarlong(value, b);
        out.write(b.array(), 0, b.position());
    }

    // ---- reading ----

    /** Every whole batch with its records; a cut-off last one shows only as bytes. */
    static JsonNode open(ByteBuffer bytes) {
        ArrayNode list = JSON.arrayNode();
        int total = bytes.remaining();
        int whole = 0;
        try {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(bytes).batches()) {
                whole += batch.sizeInBytes();
                ObjectNode json = list.addObject();
                json.put("baseOffset", batch.baseOffset());
                json.put("lastOffset", batch.lastOffset());
                json.put("magic", batch.magic());
                json.put("codec", batch.compressionType().name);
                json.put("timestampType", batch.timestampType().name);
                json.put("maxTimestamp", batch.maxTimestamp());
                json.put("leaderEpoch", batch.partitionLeaderEpoch());
                json.put("producerId", batch.producerId());
                json.put("producerEpoch", batch.producerEpoch());
                json.put("baseSequence", batch.baseSequence());
                json.put("transactional", batch.isTransactional());
                json.put("control", batch.isControlBatch());
                json.put("sizeInBytes", batch.sizeInBytes());
                json.put("valid", batch.isValid());
                ArrayNode records = json.putArray("records");
                for (Record record : batch) {
                    records.add(open(record));
                }
            }
        } catch (RuntimeException e) {
            list.addObject().put("unreadable", e.getClass().getSimpleName() + ": " + e.getMessage());
        }
        if (whole < total) {
            list.addObject().put("bytesBehindTheLastWholeBatch", total - whole);
        }
        return list;
    }

    private static ObjectNode open(Record record) {
        ObjectNode json = JSON.objectNode();
        json.put("offset", record.offset());
        json.put("timestamp", record.timestamp());
        json.put("key", text(record.key()));
        json.put("value", text(record.value()));
        if (record.headers().length > 0) {
            ArrayNode headers = json.putArray("headers");
            for (Header header : record.headers()) {
                headers.addObject()
                        .put(header.key(), header.value() == null ? null : text(ByteBuffer.wrap(header.value())));
            }
        }
        return json;
    }

    /** As text where it is printable, else as {@code hex:…}. */
    static String text(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        boolean printable = true;
        for (byte b : bytes) {
            printable &= b >= 32 && b < 127;
        }
        if (printable) {
            String text = new String(bytes, StandardCharsets.US_ASCII);
            return text.length() <= 100 ? text : text.substring(0, 20) + "… (" + text.length() + " bytes)";
        }
        StringBuilder hex = new StringBuilder("hex:");
        for (byte b : bytes) {
            hex.append(String.format("%02x", b));
        }
        return hex.toString();
    }
}
