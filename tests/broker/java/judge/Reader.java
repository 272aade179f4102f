package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.store.*;

/** Asks a started store everything that a consumer, a query or an administrator could ask. */
final class Reader {
    private static final String GROUP = "judge";
    private static final int PULL = 32;
    private static final int GAP_MAX = 10_000;

    private final StoreSession session;
    private final DefaultMessageStore store;

    Reader(StoreSession session) {
        this.session = session;
        this.store = session.store;
    }

    JsonObject everything(JsonObject request) throws Exception {
        JsonObject answer = new JsonObject();
        answer.add("offsets", session.offsets());
        LogWalk walk = new LogWalk(store);
        answer.add("commitLog", walk.rows);
        JsonArray records = new JsonArray();
        for (DispatchRequest record : walk.records) {
            records.add(Json.row(record.getCommitLogOffset(), record.getTopic(), record.getQueueId(),
                record.getConsumeQueueOffset(), record.getStoreTimestamp(), record.getTagsCode()));
        }
        answer.add("records", records);
        JsonArray queues = new JsonArray();
        Map<String, Queue> wanted = new LinkedHashMap<>();
        for (Queue queue : Queue.known(store)) {
            wanted.put(queue.topic + "/" + queue.queueId, queue);
        }
        TreeSet<String> known = new TreeSet<>(wanted.keySet());
        for (DispatchRequest record : walk.records) {
            wanted.putIfAbsent(record.getTopic() + "/" + record.getQueueId(),
                new Queue(store, record.getTopic(), record.getQueueId()));
        }
        for (JsonElement element : Json.array(request, "queues")) {
            JsonArray name = element.getAsJsonArray();
            Queue queue = new Queue(store, name.get(0).getAsString(), name.get(1).getAsInt());
            wanted.putIfAbsent(queue.topic + "/" + queue.queueId, queue);
        }
        long times = Json.number(request, "times", 3);
        boolean brief = Json.flag(request, "brief", false);
        boolean contents = Json.flag(request, "contents", false);
        for (Map.Entry<String, Queue> entry : wanted.entrySet()) {
            try {
                JsonObject row = queue(entry.getValue(), known.contains(entry.getKey()), walk.records, times, brief);
                if (contents) {
                    row.add("contents", contents(entry.getValue(), row.getAsJsonArray("messages")));
                }
                queues.add(row);
            } catch (RuntimeException e) {
                JsonObject failed = entry.getValue().named();
                failed.addProperty("error", StoreSession.describe(e));
                queues.add(failed);
            }
        }
        answer.add("queues", queues);
        Lookup lookup = new Lookup(store);
        if (!brief) {
            answer.add("keys", lookup.all(walk.records, Json.array(request, "keys")));
        }
        answer.addProperty("stuck", lookup.stuck);
        return answer;
    }

    private JsonObject queue(Queue queue, boolean known, List<DispatchRequest> records, long times, boolean brief)
        throws Exception {
        JsonObject answer = queue.named();
        long min = queue.min();
        long max = queue.max();
        answer.addProperty("known", known);
        answer.addProperty("min", min);
        answer.addProperty("max", max);
        answer.add("messages", messages(queue, min, max));
        if (brief) {
            return answer;
        }
        JsonObject edges = new JsonObject();
        edges.add("-1", row(queue, -1, 1, null));
        edges.add("min-1", row(queue, min - 1, 1, null));
        edges.add("min", row(queue, min, 1, null));
        edges.add("max-1", row(queue, max - 1, 1, null));
        edges.add("max", row(queue, max, 1, null));
        edges.add("max+1", row(queue, max + 1, 1, null));
        answer.add("edges", edges);
        answer.add("pulls", pulls(queue, min, max));
        answer.add("byTime", byTime(queue, records, times));
        return answer;
    }

    /** A consumer's way from min on; it ends where the broker gives no next offset to go to. */
    private JsonArray pulls(Queue queue, long min, long max) throws Exception {
        JsonArray pulls = new JsonArray();
        long at = min;
        while (at < max) {
            JsonArray row = row(queue, at, PULL, null);
            pulls.add(row);
            long next = row.get(2).getAsLong();
            if (next <= at) {
                return pulls;
            }
            at = next;
        }
        pulls.add(row(queue, at, PULL, null));
        return pulls;
    }

    /** [queue offset, the message as consumers decode it, or null] of each row that has one. */
    private JsonArray contents(Queue queue, JsonArray rows) throws Exception {
        JsonArray contents = new JsonArray();
        for (JsonElement element : rows) {
            long at = element.getAsJsonArray().get(0).getAsLong();
            GetMessageResult result = store.getMessage(GROUP, queue.topic, queue.queueId, at, 1, null);
            try {
                for (SelectMappedBufferResult message : result.getMessageMapedList()) {
                    contents.add(Json.row(at, Messages.decoded(message.getByteBuffer())));
                }
            } finally {
                result.release();
            }
        }
        return contents;
    }

    /** Row by row; of more offsets in a row without a unit of their own than GAP_MAX, only those before max. */
    private JsonArray messages(Queue queue, long min, long max) throws Exception {
        JsonArray rows = new JsonArray();
        long at = min;
        int gap = 0;
        while (at < max) {
            Queue.Unit unit = unit(queue, at);
            JsonArray asked = row(queue, at, 1, null);
            JsonArray places = asked.get(4).getAsJsonArray();
            JsonArray row = Json.row(at, asked.get(1), places.isEmpty() ? null : places.get(0),
                unit == null ? null : unit.row());
            if (unit != null && unit.further().size() > 0) {
                row.add(unit.further());
            }
            rows.add(row);
            long end = unit == null ? at : unit.firstQueueOffset + unit.messageCount;
            gap = end > at ? 0 : gap + 1;
            at = gap > GAP_MAX ? Math.max(at + 1, max - GAP_MAX) : Math.max(at + 1, end);
        }
        return rows;
    }

    /** Null too where the broker throws, as over a unit of an extension that reaches past the end of its file. */
    private static Queue.Unit unit(Queue queue, long at) throws Exception {
        try {
            return queue.unit(at);
        } catch (RuntimeException e) {
            return null;
        }
    }

    /** [queue offset, status, next offset, message count, [physical offsets]]; or the exception as status. */
    private JsonArray row(Queue queue, long at, int count, MessageFilter filter) throws Exception {
        GetMessageResult result;
        try {
            result = store.getMessage(GROUP, queue.topic, queue.queueId, at, count, filter);
        } catch (RuntimeException e) {
            return Json.row(at, StoreSession.describe(e), at, 0, new JsonArray());
        }
        if (result == null) {
            return Json.row(at, null, at, 0, new JsonArray());
        }
        try {
            JsonArray places = new JsonArray();
            for (SelectMappedBufferResult message : result.getMessageMapedList()) {
                places.add(message.getStartOffset());
            }
            return Json.row(at, result.getStatus(), result.getNextBeginOffset(), result.getMessageCount(), places);
        } finally {
            result.release();
        }
    }

    JsonObject get(JsonObject request) throws Exception {
        String topic = request.get("topic").getAsString();
        JsonArray rows = new JsonArray();
        MessageFilter filter = Json.present(request, "tags") ? filter(topic, Json.text(request, "tags", "*")) : null;
        Queue queue = new Queue(store, topic, request.get("queueId").getAsInt());
        int count = (int) Json.number(request, "count", PULL);
        for (JsonElement queueOffset : request.getAsJsonArray("queueOffsets")) {
            rows.add(row(queue, queueOffset.getAsLong(), count, filter));
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("min", queue.min());
        answer.addProperty("max", queue.max());
        answer.add("rows", rows);
        return answer;
    }

    JsonObject query(JsonObject request) throws Exception {
        Lookup lookup = new Lookup(store);
        JsonObject answer = lookup.query(request.get("topic").getAsString(), request.get("key").getAsString(),
            Json.text(request, "type", null), (int) Json.number(request, "count", Lookup.MOST),
            Json.number(request, "begin", 0), Json.number(request, "end", Long.MAX_VALUE));
        answer.addProperty("stuck", lookup.stuck);
        return answer;
    }

    JsonObject offsetByTime(JsonObject request) throws Exception {
        Queue queue = new Queue(store, request.get("topic").getAsString(), request.get("queueId").getAsInt());
        JsonArray rows = new JsonArray();
        for (JsonElement time : request.getAsJsonArray("times")) {
            rows.add(timeRow(queue, time.getAsLong()));
        }
        JsonObject answer = new JsonObject();
        answer.add("rows", rows);
        return answer;
    }

    /** Around the store timestamps of the queue's messages; of many, as many as wanted, first and last among them. */
    private JsonArray byTime(Queue queue, List<DispatchRequest> records, long wanted) throws Exception {
        TreeSet<Long> stored = new TreeSet<>();
        for (DispatchRequest record : records) {
            if (record.getTopic().equals(queue.topic) && record.getQueueId() == queue.queueId) {
                stored.add(record.getStoreTimestamp());
            }
        }
        List<Long> all = new ArrayList<>(stored);
        TreeSet<Long> times = new TreeSet<>();
        long count = Math.min(wanted, all.size());
        for (long i = 0; i < count; i++) {
            long time = all.get((int) (count == 1 ? 0 : i * (all.size() - 1) / (count - 1)));
            times.add(time - 1);
            times.add(time);
            times.add(time + 1);
        }
        JsonArray rows = new JsonArray();
        for (long time : times) {
            rows.add(timeRow(queue, time));
        }
        return rows;
    }

    private JsonObject timeRow(Queue queue, long time) throws Exception {
        JsonObject row = new JsonObject();
        row.addProperty("time", time);
        try {
            row.addProperty("offset", store.getOffsetInQueueByTime(queue.topic, queue.queueId, time));
            Method bounded = Reflect.method(store.getClass(), "getOffsetInQueueByTime", 4);
            Object[] boundaries = bounded == null ? new Object[0] : bounded.getParameterTypes()[3].getEnumConstants();
            for (Object boundary : boundaries) {
                row.addProperty(boundary.toString(),
                    (Number) Reflect.invoke(bounded, store, queue.topic, queue.queueId, time, boundary));
            }
        } catch (RuntimeException e) {
            row.addProperty("error", StoreSession.describe(e));
        }
        return row;
    }

    private static MessageFilter filter(String topic, String tags) throws Exception {
        Class<?> api = Reflect.firstClass("org.apache.rocketmq.common.filter.FilterAPI",
            "org.apache.rocketmq.remoting.protocol.filter.FilterAPI");
        Method build = Reflect.method(api, "buildSubscriptionData", 2);
        Object subscription = build != null
            ? Reflect.invoke(build, null, topic, tags)
            : Reflect.invoke(Reflect.method(api, "buildSubscriptionData", 3), null, GROUP, topic, tags);
        return (MessageFilter) DefaultMessageFilter.class.getConstructors()[0].newInstance(subscription);
    }
}
