import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** A master of controller mode with ten messages in the folder that is named, until standard input ends. */
public final class ControllerMaster {
    public static void main(String[] arguments) throws Exception {
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(arguments[0]);
        store.setStorePathCommitLog(arguments[0] + "/commitlog");
        store.setMappedFileSizeCommitLog(1 << 20);
        store.setHaListenPort(Integer.parseInt(arguments[1]));
        store.setTimerWheelEnable(false);
        BrokerConfig broker = new BrokerConfig();
        broker.setEnableControllerMode(true);
        broker.setBrokerId(0);
        DefaultMessageStore log = new DefaultMessageStore(store, new BrokerStatsManager("judge", false),
            (topic, queue, position, tags, time, bits, properties) -> { }, broker, new ConcurrentHashMap<>());
        log.load();
        log.start();
        AutoSwitchHAService service = (AutoSwitchHAService) log.getHaService();
        service.changeToMaster(1);
        for (int i = 0; i < 10; i++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("Orders");
            message.setKeys("k" + i);
            message.setBody(("body " + i).getBytes(StandardCharsets.UTF_8));
            message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            log.putMessage(message);
        }
        System.out.println("ready " + log.getMaxPhyOffset());
        System.in.read();
        System.exit(0);
    }
}
