package judge;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * From 5.0 on the checks before a put and the rewriting of delayed messages are hooks which the broker registers in
 * its store. They are the broker's own here: a BrokerController without its network registers them.
 */
final class BrokerHooks {
    private BrokerHooks() {
    }

    /** False if this version has no such hooks, or its broker was not published beside its store. */
    static boolean register(DefaultMessageStore store, StoreFactory factory) throws Exception {
        Class<?> controllerType;
        try {
            controllerType = Class.forName("org.apache.rocketmq.broker.BrokerController");
        } catch (ClassNotFoundException e) {
            return false;
        }
        if (Reflect.method(controllerType, "registerMessageStoreHook", 0) == null) {
            return false;
        }
        Object controller = withoutConstructor(controllerType);
        Reflect.setField(controller, "messageStoreConfig", factory.storeConfig);
        Reflect.setField(controller, "brokerConfig", factory.brokerConfig);
        Reflect.setField(controller, "messageStore", store);
        Reflect.setField(controller, "topicConfigManager", topicConfigManager(factory.topics));
        Class<?> scheduleType = Class.forName("org.apache.rocketmq.broker.schedule.ScheduleMessageService");
        Object schedule = scheduleType.getConstructor(controllerType).newInstance(controller);
        Reflect.call(schedule, "parseDelayLevel");
        Reflect.setField(controller, "scheduleMessageService", schedule);
        Reflect.call(controller, "registerMessageStoreHook");
        return true;
    }

    private static Object topicConfigManager(ConcurrentMap<?, ?> topics) throws Exception {
        Constructor<?> constructor =
            Class.forName("org.apache.rocketmq.broker.topic.TopicConfigManager").getConstructor();
        Object topicConfigManager = constructor.newInstance();
        Reflect.call(topicConfigManager, "setTopicConfigTable", topics);
        return topicConfigManager;
    }

    private static Object withoutConstructor(Class<?> type) throws Exception {
        Class<?> unsafeType = Class.forName("sun.misc.Unsafe");
        Field instance = unsafeType.getDeclaredField("theUnsafe");
        instance.setAccessible(true);
        return unsafeType.getMethod("allocateInstance", Class.class).invoke(instance.get(null), type);
    }
}
