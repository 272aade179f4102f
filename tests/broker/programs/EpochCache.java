import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.store.ha.autoswitch.BrokerMetadata;
import org.apache.rocketmq.store.ha.autoswitch.EpochFileCache;

/**
 * What the broker's own classes read from text files of controller mode, one line for each folder that is named.
 * After an end of the log: whether a new master with that log may add its epoch.
 * After "agree", for each two folders and ends of logs: where a slave with the first truncates its log.
 */
public final class EpochCache {
    public static void main(String[] arguments) throws Exception {
        if ("agree".equals(arguments[0])) {
            for (int i = 1; i < arguments.length; i += 4) {
                System.out.println(cache(arguments[i], arguments[i + 1])
                    .findConsistentPoint(cache(arguments[i + 2], arguments[i + 3])));
            }
            return;
        }
        long logEnd = Long.parseLong(arguments[0]);
        for (int i = 1; i < arguments.length; i++) {
            System.out.println(Files.exists(Path.of(arguments[i], "brokerIdentity"))
                ? identity(arguments[i] + "/brokerIdentity")
                : epochs(arguments[i] + "/epochFileCheckpoint", logEnd));
        }
    }

    private static String epochs(String path, long logEnd) throws Exception {
        EpochFileCache cache = new EpochFileCache(path);
        try {
            cache.initCacheFromFile();
        } catch (NumberFormatException e) {
            return "stops";
        }
        StringBuilder text = new StringBuilder();
        for (var entry : cache.getAllEntries()) {
            text.append(entry.getEpoch()).append('-').append(entry.getStartOffset()).append(' ');
        }
        if (logEnd >= 0 && cache.lastEntry() != null) {
            var last = cache.lastEntry();
            var mine = last.getClass().getConstructor(int.class, long.class).newInstance(last.getEpoch() + 1, logEnd);
            text.append(cache.appendEntry(mine) ? "added" : "refused");
        }
        return text.toString().trim();
    }

    /** As a slave makes it of a list of epochs and of the end of a log. */
    private static EpochFileCache cache(String folder, String logEnd) throws Exception {
        EpochFileCache file = new EpochFileCache(folder + "/epochFileCheckpoint");
        file.initCacheFromFile();
        EpochFileCache cache = new EpochFileCache();
        cache.initCacheFromEntries(file.getAllEntries());
        cache.setLastEpochEntryEndOffset(Long.parseLong(logEnd));
        return cache;
    }

    private static String identity(String path) {
        BrokerMetadata metadata = new BrokerMetadata(path);
        try {
            metadata.readFromFile();
        } catch (Exception e) {
            return "broken";
        }
        return metadata.getClusterName() + "#" + metadata.getBrokerName() + "#" + metadata.getBrokerId();
    }
}
