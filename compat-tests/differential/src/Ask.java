import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.message.ApiMessageType;
import org.yaml.snakeyaml.Yaml;

/** {@code ask}: one or several requests on one connection, their answers as JSON. */
final class Ask {
    private Ask() {}

    public static void main(String[] args) throws Exception {
        String target = "127.0.0.1:9092";
        String client = "ask";
        int timeoutMs = 5_000;
        boolean compact = false;
        boolean hex = false;
        int i = 0;
        for (; i < args.length && args[i].startsWith("--"); i++) {
            switch (args[i]) {
                case "--target":
                    target = args[++i];
                    break;
                case "--client":
                    client = args[++i];
                    break;
                case "--timeout":
                    timeoutMs = Integer.parseInt(args[++i]);
                    break;
                case "--compact":
                    compact = true;
                    break;
                case "--hex":
                    hex = true;
                    break;
                default:
                    System.err.println("unknown option " + args[i]);
                    System.exit(2);
            }
        }
        if (args.length == i) {
            System.err.println("ask [--target HOST:PORT] [--client ID] [--timeout MS] [--compact] [--hex] (API VERSION BODY)...");
            System.exit(2);
        }
        ObjectMapper mapper = new ObjectMapper();
        if (!compact) {
            mapper.enable(SerializationFeature.INDENT_OUTPUT);
        }
        int colon = target.lastIndexOf(':');
        try (Connection connection =
                new Connection(target.substring(0, colon), Integer.parseInt(target.substring(colon + 1)))) {
            for (; i < args.length; i += 3) {
                ApiMessageType api = Messages.api(args[i]);
                String given = i + 1 < args.length ? args[i + 1] : "latest";
                short version = given.equals("latest") ? api.highestSupportedVersion(true) : Short.parseShort(given);
                JsonNode body = i + 2 < args.length
                        ? mapper.valueToTree(new Yaml().load(args[i + 2]))
                        : JsonNodeFactory.instance.objectNode();
                short layout = (short) Math.max(
                        api.lowestSupportedVersion(), Math.min(version, api.highestSupportedVersion(true)));
                int id = connection.send(api, layout, version, client, body);
                if (hex) {
                    ByteBuffer sent = Messages.frame(api, layout, version, id, client, body);
                    System.out.print(Hex.text(">", Hex.request(api, layout, sent)));
                }
                ByteBuffer frame;
                try {
                    frame = connection.receive(timeoutMs);
                } catch (SocketTimeoutException e) {
                    System.out.println("no answer within " + timeoutMs + " ms");
                    continue;
                }
                if (frame == null) {
                    System.out.println("connection closed");
                    System.exit(1);
                }
                if (hex) {
                    System.out.print(Hex.text("<", Hex.response(api, layout, frame)));
                    continue;
                }
                System.out.println(mapper.writeValueAsString(Messages.decode(api, version, frame, id)));
            }
        } catch (Messages.Fault e) {
            System.err.println(e.getMessage());
            System.exit(2);
        }
    }
}
