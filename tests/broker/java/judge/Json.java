package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.Map;
import java.util.TreeMap;

/** Short ways to read and build the protocol's JSON. */
final class Json {
    private Json() {
    }

    static String text(JsonObject object, String name, String fallback) {
        return present(object, name) ? object.get(name).getAsString() : fallback;
    }

    static long number(JsonObject object, String name, long fallback) {
        return present(object, name) ? object.get(name).getAsLong() : fallback;
    }

    static boolean flag(JsonObject object, String name, boolean fallback) {
        return present(object, name) ? object.get(name).getAsBoolean() : fallback;
    }

    static JsonObject object(JsonObject object, String name) {
        return present(object, name) ? object.getAsJsonObject(name) : new JsonObject();
    }

    static JsonArray array(JsonObject object, String name) {
        return present(object, name) ? object.getAsJsonArray(name) : new JsonArray();
    }

    static boolean present(JsonObject object, String name) {
        return object.has(name) && !object.get(name).isJsonNull();
    }

    /** Text values by name; sorted, so that what follows from their order is the same in each run. */
    static Map<String, String> texts(JsonObject object) {
        Map<String, String> texts = new TreeMap<>();
        for (Map.Entry<String, JsonElement> entry : object.entrySet()) {
            texts.put(entry.getKey(), entry.getValue().getAsString());
        }
        return texts;
    }

    static JsonArray row(Object... cells) {
        JsonArray row = new JsonArray();
        for (Object cell : cells) {
            if (cell == null) {
                row.add((JsonElement) null);
            } else if (cell instanceof JsonElement) {
                row.add((JsonElement) cell);
            } else if (cell instanceof Number) {
                row.add((Number) cell);
            } else {
                row.add(cell.toString());
            }
        }
        return row;
    }

    /** One line of pure ASCII: a lone surrogate survives as an escape, which no UTF-8 could carry. */
    static String line(JsonElement element) {
        String text = element.toString();
        StringBuilder line = new StringBuilder(text.length() + 16);
        for (int i = 0; i < text.length(); i++) {
            char unit = text.charAt(i);
            if (unit < 0x7f) {
                line.append(unit);
            } else {
                line.append(String.format("\\u%04x", (int) unit));
            }
        }
        return line.toString();
    }
}
