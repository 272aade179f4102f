package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.*;

/** One consume queue, with the differences between the 4.x class and the 5.x interface taken away. */
final class Queue {
    final String topic;
    final int queueId;
    private final DefaultMessageStore store;

    Queue(DefaultMessageStore store, String topic, int queueId) {
        this.store = store;
        this.topic = topic;
        this.queueId = queueId;
    }

    /** The queues that the store found by itself, by name. */
    static List<Queue> known(DefaultMessageStore store) {
        List<Queue> queues = new ArrayList<>();
        for (Map.Entry<String, ? extends Map<Integer, ?>> topic : store.getConsumeQueueTable().entrySet()) {
            for (Integer queueId : topic.getValue().keySet()) {
                queues.add(new Queue(store, topic.getKey(), queueId));
            }
        }
        queues.sort((a, b) -> a.topic.equals(b.topic)
            ? Integer.compare(a.queueId, b.queueId) : a.topic.compareTo(b.topic));
        return queues;
    }

    JsonObject named() {
        JsonObject row = new JsonObject();
        row.addProperty("topic", topic);
        row.addProperty("queueId", queueId);
        return row;
    }

    long min() {
        return store.getMinOffsetInQueue(topic, queueId);
    }

    long max() throws Exception {
        return store.getMaxOffsetInQueue(topic, queueId);
    }

    long maxPhysicalOffset() {
        return store.findConsumeQueue(topic, queueId).getMaxPhysicOffset();
    }

    /** The unit of this queue offset, or null. */
    Unit unit(long queueOffset) throws Exception {
        Object queue = store.findConsumeQueue(topic, queueId);
        return Reflect.has(queue, "isExtAddr", 1) ? storedUnit(queue, queueOffset) : describedUnit(queue, queueOffset);
    }

    /** As the bytes of the plain queue say it: of an extension unit the address, not what stands there. */
    private static Unit storedUnit(Object queue, long queueOffset) throws Exception {
        SelectMappedBufferResult buffer = (SelectMappedBufferResult) Reflect.call(queue, "getIndexBuffer", queueOffset);
        if (buffer == null) {
            return null;
        }
        Unit unit = new Unit();
        try {
            unit.physicalOffset = buffer.getByteBuffer().getLong();
            unit.size = buffer.getByteBuffer().getInt();
            unit.tagsCode = buffer.getByteBuffer().getLong();
        } finally {
            buffer.release();
        }
        unit.firstQueueOffset = queueOffset;
        if ((Boolean) Reflect.call(queue, "isExtAddr", unit.tagsCode)) {
            unit.extension = Reflect.call(queue, "getExt", unit.tagsCode);
        }
        return unit;
    }

    /** As the queues of 5.x describe it: batch queues and those in RocksDB. */
    private static Unit describedUnit(Object queue, long queueOffset) throws Exception {
        Object found = Reflect.call(queue, "get", queueOffset);
        if (found == null) {
            return null;
        }
        Unit unit = new Unit();
        unit.physicalOffset = ((Number) Reflect.call(found, "getPos")).longValue();
        unit.size = ((Number) Reflect.call(found, "getSize")).intValue();
        unit.tagsCode = ((Number) Reflect.call(found, "getTagsCode")).longValue();
        unit.firstQueueOffset = ((Number) Reflect.call(found, "getQueueOffset")).longValue();
        unit.messageCount = ((Number) Reflect.call(found, "getBatchNum")).intValue();
        return unit;
    }

    /** What a consume queue unit says; messageCount is above 1 in a batch queue only. */
    static final class Unit {
        long physicalOffset;
        int size;
        long tagsCode;
        long firstQueueOffset;
        int messageCount = 1;
        Object extension;

        JsonArray row() {
            return Json.row(physicalOffset, size, tagsCode);
        }

        JsonObject further() throws Exception {
            JsonObject further = new JsonObject();
            if (messageCount > 1) {
                further.addProperty("queueOffset", firstQueueOffset);
                further.addProperty("batchNum", messageCount);
            }
            if (extension != null) {
                JsonObject ext = new JsonObject();
                ext.addProperty("size", (Number) Reflect.call(extension, "getSize"));
                ext.addProperty("tagsCode", (Number) Reflect.call(extension, "getTagsCode"));
                ext.addProperty("msgStoreTime", (Number) Reflect.call(extension, "getMsgStoreTime"));
                byte[] bits = (byte[]) Reflect.call(extension, "getFilterBitMap");
                ext.addProperty("bitMap", bits == null ? null : Base64.getEncoder().encodeToString(bits));
                further.add("ext", ext);
            }
            return further;
        }
    }
}
