package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayInputStream;
import java.lang.reflect.Method;
import java.util.Base64;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.common.MixAll;

/** The settings that a version reads from its properties file, by reflection as the broker itself finds them. */
final class Settings {
    private static final String[] CLASSES = {
        "org.apache.rocketmq.store.config.MessageStoreConfig",
        "org.apache.rocketmq.common.BrokerConfig",
        "org.apache.rocketmq.remoting.netty.NettyServerConfig",
        "org.apache.rocketmq.remoting.netty.NettyClientConfig",
        "org.apache.rocketmq.auth.config.AuthConfig",
        "org.apache.rocketmq.tieredstore.MessageStoreConfig",
        "org.apache.rocketmq.tieredstore.common.TieredMessageStoreConfig",
    };

    private Settings() {
    }

    /** Of each class that is there: the settings and the types that they are set by. */
    static JsonObject names() throws Exception {
        JsonObject answer = new JsonObject();
        for (String name : CLASSES) {
            Object target = made(name);
            if (target != null) {
                JsonObject settings = new JsonObject();
                keys(target).forEach((key, types) -> settings.addProperty(key, types));
                answer.add(name, settings);
            }
        }
        return answer;
    }

    /** What a new object of each class holds once each of some files was loaded and applied to it. */
    static JsonObject applied(JsonArray files) throws Exception {
        JsonArray answers = new JsonArray();
        for (JsonElement file : files) {
            JsonObject answer = new JsonObject();
            Properties properties = new Properties();
            try {
                properties.load(new ByteArrayInputStream(Base64.getDecoder().decode(file.getAsString())));
                for (String name : CLASSES) {
                    Object target = made(name);
                    if (target != null) {
                        MixAll.properties2Object(properties, target);
                        answer.add(name, values(target));
                    }
                }
            } catch (IllegalArgumentException e) {
                answer.addProperty("refused", e.getMessage());
            }
            answers.add(answer);
        }
        JsonObject answer = new JsonObject();
        answer.add("answers", answers);
        return answer;
    }

    private static Object made(String name) throws Exception {
        try {
            return Class.forName(name).getConstructor().newInstance();
        } catch (ClassNotFoundException e) {
            return null;
        }
    }

    private static Map<String, String> keys(Object target) {
        Map<String, String> keys = new TreeMap<>();
        for (Method method : target.getClass().getMethods()) {
            String name = method.getName();
            if (name.startsWith("set") && method.getParameterCount() > 0) {
                String key = name.substring(3, 4).toLowerCase(Locale.ROOT) + name.substring(4);
                keys.merge(key, method.getParameterTypes()[0].getSimpleName(), (one, other) -> one + " " + other);
            }
        }
        return keys;
    }

    private static JsonObject values(Object target) throws Exception {
        JsonObject values = new JsonObject();
        for (String key : keys(target).keySet()) {
            if (Reflect.hasField(target, key)) {
                values.addProperty(key, String.valueOf(Reflect.field(target, key)));
            }
        }
        return values;
    }
}
