import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.tieredstore.MessageStoreConfig;
import org.apache.rocketmq.tieredstore.file.FlatFileFactory;
import org.apache.rocketmq.tieredstore.file.FlatMessageFile;
import org.apache.rocketmq.tieredstore.metadata.DefaultMetadataStore;

/**
 * Puts records into a tiered store on files with the broker's own classes, or reads every message of stores.
 * Arguments: topic, queue id, bytes of a log segment; then "write", a store and a file with records one after the
 * other; or "read" and stores: for each one line with queue offset, physical offset and CRC of each message.
 */
public final class TieredStore {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[0];
        int queueId = Integer.parseInt(arguments[1]);
        for (int i = 4; i < ("write".equals(arguments[3]) ? 5 : arguments.length); i++) {
            MessageStoreConfig config = new MessageStoreConfig();
            config.setStorePathRootDir(arguments[i]);
            config.setTieredStoreFilePath(arguments[i] + "/tiered");
            config.setTieredBackendServiceProvider("org.apache.rocketmq.tieredstore.provider.PosixFileSegment");
            config.setBrokerName("broker-a");
            config.setBrokerClusterName("cluster-a");
            config.setTieredStoreCommitLogMaxSize(Long.parseLong(arguments[2]));
            config.setTieredStoreConsumeQueueMaxSize(400);
            DefaultMetadataStore metadata = new DefaultMetadataStore(config);
            metadata.load();
            FlatMessageFile file = new FlatMessageFile(new FlatFileFactory(metadata, config), topic, queueId);
            if ("write".equals(arguments[3])) {
                write(file, topic, queueId, ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[5]))));
                metadata.persist();
            }
            System.out.println(served(file));
        }
        System.exit(0);
    }

    private static String served(FlatMessageFile file) {
        StringBuilder text = new StringBuilder();
        for (long at = file.getConsumeQueueMinOffset(); at < file.getConsumeQueueCommitOffset(); at++) {
            text.append(at).append(':');
            try {
                ByteBuffer message = file.getMessageAsync(at).get(5, TimeUnit.SECONDS);
                text.append(message.getLong(message.position() + 20)).append('@')
                    .append(message.getLong(message.position() + 28));
                CRC32 bytes = new CRC32();
                bytes.update(message);
                text.append('/').append(bytes.getValue());
            } catch (Exception e) {
                text.append("fails");
            }
            text.append(' ');
        }
        return text.toString().trim();
    }

    private static void write(FlatMessageFile file, String topic, int queueId, ByteBuffer records) {
        boolean begins = true;
        while (records.hasRemaining()) {
            ByteBuffer record = records.slice();
            int size = record.getInt(0);
            record.limit(size);
            long queueOffset = record.getLong(20);
            if (begins) {
                file.initOffset(queueOffset);
                begins = false;
            }
            file.appendCommitLog(record);
            long place = file.getCommitLogMaxOffset() - size;
            file.appendConsumeQueue(new DispatchRequest(topic, queueId, place, size, 7L, record.getLong(56),
                queueOffset, "", null, 0, 0, null));
            file.commitAsync().join();
            records.position(records.position() + size);
        }
        file.flushMetadata();
    }
}
