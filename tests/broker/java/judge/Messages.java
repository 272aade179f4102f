package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;

/**
 * Puts messages as the broker's SendMessageProcessor does. The properties are given as a map, which is encoded like a
 * client encodes it and then once more as the broker does, or as "propertiesText", which is stored as it stands.
 */
final class Messages {
    private static final int INNER_BATCH_FLAGS = 0x80 | 0x40;

    private final DefaultMessageStore store;

    Messages(DefaultMessageStore store) {
        this.store = store;
    }

    JsonObject put(JsonObject wanted) throws Exception {
        if (Json.present(wanted, "batch")) {
            MessageExtBatch batch = batch(wanted);
            return answer(store.putMessages(batch), batch);
        }
        MessageExt message = Json.present(wanted, "innerBatch") ? innerBatch(wanted) : single(wanted);
        return answer(store.putMessage((MessageExtBrokerInner) message), message);
    }

    void putUnchecked(JsonObject wanted) throws Exception {
        PutMessageResult result = store.putMessage(single(wanted));
        if (!result.isOk()) {
            throw new IllegalStateException("put ended with " + result.getPutMessageStatus());
        }
    }

    private static MessageExtBrokerInner single(JsonObject wanted) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, wanted);
        message.setBody(body(wanted));
        String text = propertiesText(wanted);
        MessageAccessor.setProperties(message, properties(text));
        message.setPropertiesString(withoutWait(message, text));
        return message;
    }

    private static MessageExtBatch batch(JsonObject wanted) throws Exception {
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, wanted);
        batch.setBody(MessageDecoder.encodeMessages(parts(wanted.getAsJsonArray("batch"))));
        MessageAccessor.setProperties(batch, properties(propertiesText(wanted)));
        setPropertiesText(batch, MessageDecoder.messageProperties2String(batch.getProperties()));
        return batch;
    }

    private static MessageExtBatch innerBatch(JsonObject wanted) throws Exception {
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, wanted);
        List<Message> parts = parts(wanted.getAsJsonArray("innerBatch"));
        batch.setBody(MessageDecoder.encodeMessages(parts));
        batch.setSysFlag(batch.getSysFlag() | INNER_BATCH_FLAGS);
        Reflect.call(batch, "setInnerBatch", true);
        MessageAccessor.setProperties(batch, properties(propertiesText(wanted)));
        MessageAccessor.putProperty(batch, "INNER_NUM", String.valueOf(parts.size()));
        setPropertiesText(batch, MessageDecoder.messageProperties2String(batch.getProperties()));
        return batch;
    }

    private static void setPropertiesText(MessageExtBatch batch, String text) throws Exception {
        // In 4.x a batch has no such text: the encoder takes the map.
        if (Reflect.has(batch, "setPropertiesString", 1)) {
            Reflect.call(batch, "setPropertiesString", text);
        }
    }

    private static void fill(MessageExt message, JsonObject wanted) throws Exception {
        message.setTopic(wanted.get("topic").getAsString());
        message.setQueueId((int) Json.number(wanted, "queueId", 0));
        message.setFlag((int) Json.number(wanted, "flag", 0));
        message.setSysFlag((int) Json.number(wanted, "sysFlag", 0));
        message.setBornTimestamp(Json.number(wanted, "bornTimestamp", System.currentTimeMillis()));
        message.setBornHost(StoreSession.address(Json.text(wanted, "bornHost", "127.0.0.1:40000")));
        message.setStoreHost(StoreSession.address(Json.text(wanted, "storeHost", "127.0.0.1:10911")));
        message.setReconsumeTimes((int) Json.number(wanted, "reconsumeTimes", 0));
        message.setPreparedTransactionOffset(Json.number(wanted, "preparedTransactionOffset", 0));
        // Only a store with duplicationEnable keeps it; any other takes its own clock, and the answer says which time.
        message.setStoreTimestamp(Json.number(wanted, "storeTimestamp", 0));
    }

    private static List<Message> parts(JsonArray wanted) {
        List<Message> parts = new ArrayList<>();
        for (JsonElement element : wanted) {
            JsonObject part = element.getAsJsonObject();
            Message message = new Message();
            message.setBody(body(part));
            message.setFlag((int) Json.number(part, "flag", 0));
            MessageAccessor.setProperties(message, new HashMap<>(Json.texts(Json.object(part, "properties"))));
            parts.add(message);
        }
        return parts;
    }

    private static byte[] body(JsonObject wanted) {
        return Json.present(wanted, "body") ? Base64.getDecoder().decode(wanted.get("body").getAsString()) : null;
    }

    private static String propertiesText(JsonObject wanted) {
        if (Json.present(wanted, "propertiesText")) {
            return wanted.get("propertiesText").getAsString();
        }
        Map<String, String> client = new HashMap<>(Json.texts(Json.object(wanted, "properties")));
        String sent = MessageDecoder.messageProperties2String(client);
        return MessageDecoder.messageProperties2String(properties(sent));
    }

    private static Map<String, String> properties(String text) {
        Map<String, String> properties = MessageDecoder.string2messageProperties(text);
        return properties == null ? new HashMap<>() : properties;
    }

    /** 4.x keeps WAIT in the map but not in the stored text; later stores take it out themselves. */
    private static String withoutWait(MessageExtBrokerInner message, String text) {
        if (Reflect.has(message, "removeWaitStorePropertyString", 0)
            || !message.getProperties().containsKey(MessageConst.PROPERTY_WAIT_STORE_MSG_OK)) {
            return text;
        }
        // Out of the map and back into it, as SendMessageProcessor does: a copy would have another order.
        String wait = message.getProperties().remove(MessageConst.PROPERTY_WAIT_STORE_MSG_OK);
        String stored = MessageDecoder.messageProperties2String(message.getProperties());
        message.getProperties().put(MessageConst.PROPERTY_WAIT_STORE_MSG_OK, wait);
        return stored;
    }

    /** A stored message as a client decodes it; null where it decodes none. */
    static JsonObject decoded(ByteBuffer stored) throws Exception {
        MessageExt message = MessageDecoder.decode(stored, true, false);
        if (message == null) {
            return null;
        }
        JsonObject fields = new JsonObject();
        fields.addProperty("messageId", message.getMsgId());
        fields.addProperty("physicalOffset", message.getCommitLogOffset());
        fields.addProperty("topic", message.getTopic());
        fields.addProperty("queueId", message.getQueueId());
        fields.addProperty("queueOffset", message.getQueueOffset());
        fields.addProperty("flag", message.getFlag());
        fields.addProperty("sysFlag", message.getSysFlag());
        fields.addProperty("bornTimestamp", message.getBornTimestamp());
        fields.addProperty("bornHost", String.valueOf(message.getBornHost()));
        fields.addProperty("storeTimestamp", message.getStoreTimestamp());
        fields.addProperty("storeHost", String.valueOf(message.getStoreHost()));
        fields.addProperty("reconsumeTimes", message.getReconsumeTimes());
        fields.addProperty("preparedTransactionOffset", message.getPreparedTransactionOffset());
        fields.addProperty("bodyCrc", message.getBodyCRC());
        byte[] body = message.getBody();
        fields.addProperty("body", body == null ? null : Base64.getEncoder().encodeToString(body));
        JsonObject properties = new JsonObject();
        if (message.getProperties() != null) {
            message.getProperties().forEach(properties::addProperty);
        }
        fields.add("properties", properties);
        return fields;
    }

    private static JsonObject answer(PutMessageResult result, MessageExt message) throws Exception {
        JsonObject answer = new JsonObject();
        answer.addProperty("status", String.valueOf(result.getPutMessageStatus()));
        answer.addProperty("topic", message.getTopic());
        answer.addProperty("queueId", message.getQueueId());
        AppendMessageResult appended = result.getAppendMessageResult();
        if (appended == null) {
            answer.add("appendStatus", null);
            return answer;
        }
        answer.addProperty("appendStatus", String.valueOf(appended.getStatus()));
        answer.addProperty("physicalOffset", appended.getWroteOffset());
        answer.addProperty("size", appended.getWroteBytes());
        answer.addProperty("queueOffset", appended.getLogicsOffset());
        answer.addProperty("storeTimestamp", appended.getStoreTimestamp());
        answer.addProperty("messageId", appended.getMsgId());
        if (Reflect.has(message, "getPropertiesString", 0)) {
            answer.addProperty("propertiesText", (String) Reflect.call(message, "getPropertiesString"));
        }
        return answer;
    }
}
