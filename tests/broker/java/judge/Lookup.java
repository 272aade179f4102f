package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.store.*;

/** Queries by key. A damaged index can hold a lookup for ever, so each runs in a thread that may be left behind. */
final class Lookup {
    static final int MOST = 64;
    private static final long PATIENCE_MS = 3_000;
    private static final String TAG_TYPE = "T";

    /** A lookup did not end: its thread spins on, and this process should not be used much longer. */
    boolean stuck;
    private final DefaultMessageStore store;
    private final boolean typed;

    Lookup(DefaultMessageStore store) {
        this.store = store;
        this.typed = Reflect.has(store, "queryMessage", 7);
    }

    /** [topic, key, [physical offsets], further] for each key, unique key and (where indexed) tag in the log. */
    JsonArray all(List<DispatchRequest> records, JsonArray furtherKeys) throws Exception {
        Map<List<String>, Boolean> wanted = new LinkedHashMap<>();
        for (DispatchRequest record : records) {
            String topic = record.getTopic();
            if (record.getUniqKey() != null) {
                wanted.put(List.of(topic, record.getUniqKey(), ""), true);
            }
            if (record.getKeys() != null) {
                for (String key : record.getKeys().split(MessageConst.KEY_SEPARATOR)) {
                    wanted.put(List.of(topic, key, ""), true);
                }
            }
            String tags = record.getPropertiesMap() == null ? null : record.getPropertiesMap().get("TAGS");
            if (typed && tags != null) {
                wanted.put(List.of(topic, tags, TAG_TYPE), true);
            }
        }
        for (JsonElement element : furtherKeys) {
            JsonArray key = element.getAsJsonArray();
            wanted.put(List.of(key.get(0).getAsString(), key.get(1).getAsString(),
                key.size() > 2 ? key.get(2).getAsString() : ""), true);
        }
        JsonArray rows = new JsonArray();
        for (List<String> key : wanted.keySet()) {
            if (!key.get(1).isEmpty()) {
                rows.add(row(key.get(0), key.get(1), key.get(2).isEmpty() ? null : key.get(2)));
            }
        }
        return rows;
    }

    private JsonArray row(String topic, String key, String type) throws Exception {
        JsonObject further = query(topic, key, type, MOST, 0, Long.MAX_VALUE);
        JsonElement served = further.remove("served");
        if (further.has("indexed") && sorted(further.getAsJsonArray("indexed")).equals(served)) {
            further.remove("indexed");
        }
        if (type != null) {
            further.addProperty("type", type);
        }
        JsonArray row = Json.row(topic, key, served);
        if (further.size() > 0) {
            row.add(further);
        }
        return row;
    }

    /** "served": physical offsets of what could be read; "indexed": what the index says, newest first; or "error". */
    JsonObject query(String topic, String key, String type, int count, long begin, long end) throws Exception {
        if (type != null && !typed) {
            throw new UnsupportedOperationException("this version has no typed queries");
        }
        JsonObject answer = new JsonObject();
        FutureTask<Void> task = new FutureTask<>(() -> {
            answer.add("indexed", indexed(topic, key, type, count, begin, end));
            answer.add("served", served(topic, key, type, count, begin, end));
            return null;
        });
        Thread thread = new Thread(task, "judge-lookup");
        thread.setDaemon(true);
        thread.start();
        String error;
        try {
            task.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
            return answer;
        } catch (TimeoutException e) {
            stuck = true;
            error = "never ends";
        } catch (ExecutionException e) {
            error = StoreSession.describe(e.getCause());
        }
        JsonObject failed = new JsonObject();
        failed.add("served", new JsonArray());
        failed.addProperty("error", error);
        return failed;
    }

    private JsonArray served(String topic, String key, String type, int count, long begin, long end) throws Exception {
        QueryMessageResult result = type == null
            ? store.queryMessage(topic, key, count, begin, end)
            : (QueryMessageResult) Reflect.call(store, "queryMessage", topic, key, count, begin, end, type, null);
        try {
            JsonArray places = new JsonArray();
            for (Object message : (List<?>) Reflect.field(result, "messageMapedList")) {
                places.add(((SelectMappedBufferResult) message).getStartOffset());
            }
            return places;
        } finally {
            result.release();
        }
    }

    private JsonArray indexed(String topic, String key, String type, int count, long begin, long end) throws Exception {
        Object index = Reflect.field(store, "indexService");
        Object result = type == null
            ? Reflect.call(index, "queryOffset", topic, key, count, begin, end)
            : Reflect.call(index, "queryOffset", topic, key, count, begin, end, type);
        JsonArray places = new JsonArray();
        ((List<?>) Reflect.call(result, "getPhyOffsets")).stream().map(Long.class::cast).forEach(places::add);
        return places;
    }

    private static JsonArray sorted(JsonArray places) {
        JsonArray sorted = new JsonArray();
        places.asList().stream().map(JsonElement::getAsLong).sorted().forEach(sorted::add);
        return sorted;
    }
}
