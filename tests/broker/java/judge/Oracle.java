package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageDecoder;

/** Small questions whose answer is Java's or the broker's own: hashes, texts, property blocks, message ids. */
final class Oracle {
    private Oracle() {
    }

    static JsonObject answer(String question, JsonObject request) throws Exception {
        JsonObject answer = new JsonObject();
        switch (question) {
            case "hash":
                answer.addProperty("hash", request.get("text").getAsString().hashCode());
                break;
            case "decode":
                answer.add("units", units(new String(bytes(request), StandardCharsets.UTF_8)));
                break;
            case "encode":
                answer.addProperty("bytes", base64(request.get("text").getAsString().getBytes(StandardCharsets.UTF_8)));
                break;
            case "crc32":
                answer.addProperty("crc32", UtilAll.crc32(bytes(request)));
                break;
            case "propertiesToText":
                Map<String, String> properties = new HashMap<>(Json.texts(request.getAsJsonObject("properties")));
                answer.addProperty("text", MessageDecoder.messageProperties2String(properties));
                break;
            case "textToProperties":
                answer.add("properties", pairs(request.get("text").getAsString()));
                break;
            case "messageId":
                answer.addProperty("messageId", MessageDecoder.createMessageId(
                    StoreSession.address(request.get("host").getAsString()), request.get("physicalOffset").getAsLong()));
                break;
            case "decodeRecord":
                answer.addProperty("record", String.valueOf(MessageDecoder.decode(ByteBuffer.wrap(bytes(request)))));
                break;
            default:
                throw new IllegalArgumentException("unknown question " + question);
        }
        return answer;
    }

    private static JsonArray pairs(String text) {
        JsonArray pairs = new JsonArray();
        Map<String, String> properties = MessageDecoder.string2messageProperties(text);
        if (properties != null) {
            properties.forEach((name, value) -> pairs.add(Json.row(name, value)));
        }
        return pairs;
    }

    private static JsonArray units(String text) {
        JsonArray units = new JsonArray();
        text.chars().forEach(units::add);
        return units;
    }

    private static byte[] bytes(JsonObject request) {
        return Base64.getDecoder().decode(request.get("bytes").getAsString());
    }

    private static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
