import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;

/** Writes one segment of a Kafka log: FILE COUNT BODY_LENGTH BATCH_BYTES; uncompressed, with keys. */
class WriteSegment {
    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[1]);
        int length = Integer.parseInt(arguments[2]);
        int batchBytes = Integer.parseInt(arguments[3]);
        byte[] body = "x".repeat(length).getBytes(StandardCharsets.US_ASCII);
        try (FileChannel file = FileChannel.open(
                Path.of(arguments[0]), StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            for (int at = 0; at < count; ) {
                MemoryRecordsBuilder batch = MemoryRecords.builder(
                    ByteBuffer.allocate(2 * batchBytes), CompressionType.NONE, TimestampType.CREATE_TIME, at);
                int bytes = 0;
                while (at < count && (bytes == 0 || bytes + length < batchBytes)) {
                    byte[] key = String.format("order-%08d", at).getBytes(StandardCharsets.US_ASCII);
                    batch.append(1_700_000_000_000L + at, key, body);
                    bytes += key.length + length;
                    at++;
                }
                for (ByteBuffer buffer = batch.build().buffer(); buffer.hasRemaining(); ) {
                    file.write(buffer);
                }
            }
        }
    }
}
