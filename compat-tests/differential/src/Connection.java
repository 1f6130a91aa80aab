import com.fasterxml.jackson.databind.JsonNode;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.message.ApiMessageType;

/** One raw connection to a broker: whole frames out, whole frames in, nothing clever between. */
final class Connection implements AutoCloseable {
    /** Answers larger than this are taken for nonsense. */
    private static final int FRAME_BYTES_MAX = 64 << 20;

    private final Socket socket;
    private final DataInputStream in;
    private int correlation = 1;

    Connection(String host, int port) throws IOException {
        socket = new Socket();
        socket.setTcpNoDelay(true);
        socket.connect(new InetSocketAddress(host, port), 5_000);
        in = new DataInputStream(new java.io.BufferedInputStream(socket.getInputStream(), 65_536));
    }

    /** Sends one request and returns the correlation id that its answer must carry. */
    int send(ApiMessageType api, short version, short claimedVersion, String client, JsonNode body)
            throws IOException {
        int id = correlation++;
        ByteBuffer frame = Messages.frame(api, version, claimedVersion, id, client, body);
        write(frame.array());
        return id;
    }

    void write(byte[] bytes) throws IOException {
        socket.getOutputStream().write(bytes);
    }

    /** The next frame without its length; {@code null} when the broker closed the connection. */
    ByteBuffer receive(int timeoutMs) throws IOException {
        socket.setSoTimeout(timeoutMs);
        try {
            int length = in.readInt();
            if (length < 0 || length > FRAME_BYTES_MAX) {
                throw new IOException("a frame of " + length + " bytes");
            }
            byte[] frame = new byte[length];
            in.readFully(frame);
            return ByteBuffer.wrap(frame);
        } catch (SocketTimeoutException e) {
            throw e;
        } catch (EOFException | SocketException e) {
            return null;
        }
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException e) {
            // Nothing is left to be lost.
        }
    }
}
