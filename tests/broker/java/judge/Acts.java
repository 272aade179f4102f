package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.File;
import java.util.HashSet;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.store.DefaultMessageStore;

/** What happens to a store in its life beside messages: topics are deleted, old files expire, its clock is wrong. */
final class Acts {
    private static final long RESERVED_MS = 72 * 3_600_000L;
    private static final long LONG_AGO_MS = 30 * 24 * 3_600_000L;

    private static final int TOGETHER = 10;

    private Acts() {
    }

    /** The store's own clock, by which it gives its records their times, goes wrong by so much. */
    static void setClock(DefaultMessageStore store, long offsetMs) throws Exception {
        Reflect.setField(store, "systemClock", new SystemClock() {
            @Override
            public long now() {
                return System.currentTimeMillis() + offsetMs;
            }
        });
    }

    /** As AdminBrokerProcessor.deleteTopic does: 5.x names the topic, 4.x names all topics that stay. */
    static JsonObject deleteTopic(DefaultMessageStore store, JsonObject request) throws Exception {
        String topic = request.get("topic").getAsString();
        BrokerConfig config = (BrokerConfig) Reflect.field(store, "brokerConfig");
        if (Reflect.has(config, "setAutoDeleteUnusedStats", 1)) {
            Reflect.call(config, "setAutoDeleteUnusedStats", false); // a store alone counts nothing
        }
        if (Reflect.has(store, "deleteTopics", 1)) {
            Set<String> topics = new HashSet<>();
            topics.add(topic);
            Reflect.call(store, "deleteTopics", topics);
        } else {
            Set<String> kept = new HashSet<>();
            for (JsonElement name : Json.array(request, "kept")) {
                kept.add(name.getAsString());
            }
            store.cleanUnusedTopic(kept);
        }
        return new JsonObject();
    }

    /** The first files of the log are made old, and the store's own cleaning of log, queues and index runs. */
    static JsonObject expire(DefaultMessageStore store, JsonObject request) throws Exception {
        TreeMap<String, File> files = new TreeMap<>();
        for (String folder : store.getMessageStoreConfig().getStorePathCommitLog().split(",")) {
            File[] found = new File(folder).listFiles();
            for (File file : found == null ? new File[0] : found) {
                files.put(file.getName(), file);
            }
        }
        for (int i = 0; i <= files.size(); i++) {
            Reflect.call(store, "flush"); // a file at a time: a later flush would make one new again
        }
        long count = request.get("files").getAsLong();
        for (File file : files.values()) {
            if (count-- <= 0) {
                break;
            }
            file.setLastModified(System.currentTimeMillis() - LONG_AGO_MS);
        }
        JsonObject answer = new JsonObject();
        Object deleted = Reflect.has(store.getCommitLog(), "deleteExpiredFile", 5)
            ? Reflect.call(store.getCommitLog(), "deleteExpiredFile", RESERVED_MS, 0, 0L, false, TOGETHER)
            : store.getCommitLog().deleteExpiredFile(RESERVED_MS, 0, 0, false);
        answer.addProperty("deleted", (Number) deleted);
        Object owner = store;
        if (!Reflect.hasField(store, "cleanConsumeQueueService")) {
            owner = Reflect.call(store, "getQueueStore");
        }
        Reflect.call(Reflect.field(owner, "cleanConsumeQueueService"), "run");
        answer.addProperty("min", store.getMinPhyOffset());
        return answer;
    }
}
