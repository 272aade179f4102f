package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.File;
import java.lang.reflect.Constructor;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Configures and constructs a store as the broker's own start-up does, whatever the version's constructor wants. */
final class StoreFactory {
    final File root;
    final MessageStoreConfig storeConfig = new MessageStoreConfig();
    final BrokerConfig brokerConfig = new BrokerConfig();
    final ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
    final JsonArray configIgnored = new JsonArray();

    StoreFactory(JsonObject request) throws Exception {
        root = new File(request.get("directory").getAsString()).getCanonicalFile();
        Properties properties = new Properties();
        properties.setProperty("storePathRootDir", root.getPath());
        properties.setProperty("storePathCommitLog", new File(root, "commitlog").getPath());
        properties.setProperty("haListenPort", "0");
        properties.setProperty("diskMaxUsedSpaceRatio", "95");
        properties.setProperty("fileReservedTime", "1000000");
        put(properties, "diskSpaceWarningLevelRatio", "99");
        put(properties, "diskSpaceCleanForciblyRatio", "99");
        put(properties, "timerWheelEnable", "false");
        Properties broker = new Properties();
        Json.texts(Json.object(request, "config")).forEach((name, value) -> {
            if (name.startsWith("broker.")) {
                broker.setProperty(name.substring("broker.".length()), value);
            } else if (!put(properties, name, name.startsWith("storePath") ? underRoot(value) : value)) {
                configIgnored.add(name);
            }
        });
        MixAll.properties2Object(properties, storeConfig);
        MixAll.properties2Object(broker, brokerConfig);
        for (Map.Entry<String, JsonElement> topic : Json.object(request, "topics").entrySet()) {
            topics.put(topic.getKey(), topicConfig(topic.getKey(), topic.getValue().getAsJsonObject()));
        }
    }

    DefaultMessageStore construct() throws Exception {
        // Listing the constructor's arguments in order covers all versions: 5.x only appends the topics.
        Class<?> type = DefaultMessageStore.class;
        if (Reflect.has(storeConfig, "getStoreType", 0)
            && "defaultRocksDB".equals(Reflect.call(storeConfig, "getStoreType"))) {
            type = Class.forName("org.apache.rocketmq.store.RocksDBMessageStore");
        }
        MessageArrivingListener nobody = (topic, queue, position, tags, time, bits, properties) -> { };
        Object[] arguments = {storeConfig, statistics(), nobody, brokerConfig, topics};
        Constructor<?> constructor = type.getConstructors()[0];
        return (DefaultMessageStore) constructor.newInstance(
            Arrays.copyOf(arguments, constructor.getParameterCount()));
    }

    private static BrokerStatsManager statistics() throws Exception {
        for (Constructor<?> constructor : BrokerStatsManager.class.getConstructors()) {
            if (constructor.getParameterTypes()[0] == String.class) {
                Object[] arguments = {"judge", false};
                return (BrokerStatsManager) constructor.newInstance(
                    Arrays.copyOf(arguments, constructor.getParameterCount()));
            }
        }
        throw new NoSuchMethodException("BrokerStatsManager(String, ...)");
    }

    /** Sets the property if this version knows it; 4.4 spells mapped with one p, and setters of DLedger begin small. */
    private boolean put(Properties properties, String name, String value) {
        for (String spelling : new String[] {name, name.replace("mapped", "maped")}) {
            String setter = "set" + Character.toUpperCase(spelling.charAt(0)) + spelling.substring(1);
            if (Reflect.has(storeConfig, setter, 1) || Reflect.has(storeConfig, "set" + spelling, 1)) {
                properties.setProperty(spelling, value);
                return true;
            }
        }
        return false;
    }

    private String underRoot(String paths) {
        return Arrays.stream(paths.split(","))
            .map(path -> new File(path).isAbsolute() ? path : new File(root, path).getPath())
            .collect(Collectors.joining(","));
    }

    private TopicConfig topicConfig(String name, JsonObject wanted) throws Exception {
        TopicConfig topic = new TopicConfig(name);
        topic.setReadQueueNums((int) Json.number(wanted, "readQueueNums", 4));
        topic.setWriteQueueNums((int) Json.number(wanted, "writeQueueNums", 4));
        topic.setPerm((int) Json.number(wanted, "perm", topic.getPerm()));
        topic.setOrder(Json.flag(wanted, "order", false));
        if (Json.present(wanted, "attributes")) {
            if (Reflect.has(topic, "setAttributes", 1)) {
                Reflect.call(topic, "setAttributes", Json.texts(wanted.getAsJsonObject("attributes")));
            } else {
                configIgnored.add("topics." + name + ".attributes");
            }
        }
        return topic;
    }
}
