package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.io.File;
import java.net.BindException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Collectors;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Name server, broker and client in one process on loopback: a store as producers and consumers see it. */
public final class WholeBroker {
    private static final long ROUTE_TIMEOUT_MS = 60_000;
    private static final long PULL_TIMEOUT_MS = 10_000;
    /** No answer depends on how busy the machine is: a broker refuses what has waited for 0.2 seconds. */
    private static final int PATIENCE_MS = 60_000;
    /** Brokers keep a core busy from their start until they note the counts of transactions for the first time. */
    private static final long COUNTS_NOTED_EVERY_MS = 500;
    private static final int PULL = 32;
    private static final int FIRST_PORT = 12_000;
    private static final int LAST_PORT = 32_000;

    private NamesrvController nameServer;
    private BrokerController broker;
    private DefaultMQPullConsumer consumer;
    private DefaultMQProducer producer;
    private TransactionMQProducer transactions;
    private NettyRemotingClient remoting;
    /** What the transaction producer answers when it is asked about a message, by body; unknown where there is none. */
    private final Map<String, LocalTransactionState> outcomes = new ConcurrentHashMap<>();
    private final Map<String, Integer> checks = new ConcurrentHashMap<>();
    private String address;

    public static void main(String[] arguments) throws Exception {
        // As BrokerStartup does: a name server takes no topics from a broker that does not say its version.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        Protocol.serve(new WholeBroker()::answer);
    }

    private JsonObject answer(JsonObject request) throws Exception {
        switch (request.get("op").getAsString()) {
            case "start":
                return start(request);
            case "awaitRoute":
                route(request.get("topic").getAsString());
                return new JsonObject();
            case "consume":
                return consume(request.get("topic").getAsString(), (int) Json.number(request, "count", PULL));
            case "view":
                return one(consumer.viewMessage(
                    request.get("topic").getAsString(), request.get("messageId").getAsString()));
            case "query":
                return query(request);
            case "send":
                return send(request);
            case "transact":
                return transact(request);
            case "checks":
                return checks(request);
            case "remote":
                return remote(request);
            case "loadOffsets":
                return loadOffsets();
            case "commit":
                return commit(request);
            case "stop":
                return stop();
            default:
                throw new IllegalArgumentException("unknown op " + request.get("op"));
        }
    }

    private JsonObject start(JsonObject request) throws Exception {
        StoreFactory factory = new StoreFactory(request);
        boolean lastExitClean = !new File(factory.root, "abort").exists();
        NettyServerConfig nameServerPort = new NettyServerConfig();
        nameServerPort.setListenPort(freePort());
        nameServer = new NamesrvController(new NamesrvConfig(), nameServerPort);
        require(nameServer.initialize(), "name server does not initialize");
        nameServer.start();

        int port = (int) Json.number(request, "port", 0);
        NettyServerConfig brokerPort = new NettyServerConfig();
        brokerPort.setListenPort(port == 0 ? freePort() : port);
        address = "127.0.0.1:" + brokerPort.getListenPort();
        factory.brokerConfig.setBrokerIP1("127.0.0.1");
        factory.brokerConfig.setNamesrvAddr("127.0.0.1:" + nameServerPort.getListenPort());
        if (Reflect.has(factory.brokerConfig, "setListenPort", 1)) {
            Reflect.call(factory.brokerConfig, "setListenPort", brokerPort.getListenPort());
        }
        if (Reflect.has(factory.brokerConfig, "setTransactionMetricFlushInterval", 1)) {
            Reflect.call(factory.brokerConfig, "setTransactionMetricFlushInterval", COUNTS_NOTED_EVERY_MS);
        }
        factory.brokerConfig.setWaitTimeMillsInSendQueue(PATIENCE_MS);
        factory.brokerConfig.setWaitTimeMillsInPullQueue(PATIENCE_MS);
        factory.storeConfig.setOsPageCacheBusyTimeOutMills(PATIENCE_MS);
        broker = new BrokerController(
            factory.brokerConfig, brokerPort, new NettyClientConfig(), factory.storeConfig);
        require(broker.initialize(), "broker does not initialize");
        for (TopicConfig topic : factory.topics.values()) {
            broker.getTopicConfigManager().updateTopicConfig(topic);
        }
        broker.start();
        startClients(factory.brokerConfig.getNamesrvAddr());

        JsonObject answer = new JsonObject();
        answer.addProperty("lastExit", lastExitClean ? "clean" : "abnormal");
        answer.addProperty("address", address);
        answer.addProperty("nameServer", factory.brokerConfig.getNamesrvAddr());
        answer.addProperty("min", broker.getMessageStore().getMinPhyOffset());
        answer.addProperty("max", broker.getMessageStore().getMaxPhyOffset());
        return answer;
    }

    private void startClients(String nameServerAddress) throws Exception {
        consumer = new DefaultMQPullConsumer("judge-consumer");
        consumer.setNamesrvAddr(nameServerAddress);
        consumer.setVipChannelEnabled(false);
        consumer.setInstanceName("judge-consumer");
        consumer.setConsumerPullTimeoutMillis(PATIENCE_MS);
        consumer.start();
        producer = new DefaultMQProducer("judge-producer");
        producer.setNamesrvAddr(nameServerAddress);
        producer.setVipChannelEnabled(false);
        producer.setInstanceName("judge-producer");
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.start();
    }

    /** Each queue from its minimum to its maximum, as a client that follows nextBeginOffset gets it, and asks again. */
    private JsonObject consume(String topic, int count) throws Exception {
        JsonArray queues = new JsonArray();
        for (MessageQueue queue : route(topic)) {
            JsonObject row = new JsonObject();
            long max = consumer.maxOffset(queue);
            long at = consumer.minOffset(queue);
            row.addProperty("queueId", queue.getQueueId());
            row.addProperty("min", at);
            row.addProperty("max", max);
            JsonArray messages = new JsonArray();
            long deadline = System.currentTimeMillis() + PULL_TIMEOUT_MS;
            while (at < max) {
                PullResult pulled = consumer.pull(queue, "*", at, count);
                if (pulled.getPullStatus() == PullStatus.FOUND) {
                    pulled.getMsgFoundList().forEach(message -> messages.add(described(message)));
                }
                if (pulled.getNextBeginOffset() > at) {
                    at = pulled.getNextBeginOffset();
                } else if (System.currentTimeMillis() > deadline) {
                    break;
                } else {
                    Thread.sleep(100);
                }
            }
            row.add("messages", messages);
            queues.add(row);
        }
        JsonObject answer = new JsonObject();
        answer.add("queues", queues);
        return answer;
    }

    private JsonObject query(JsonObject request) throws Exception {
        JsonArray messages = new JsonArray();
        try {
            producer.queryMessage(request.get("topic").getAsString(), request.get("key").getAsString(),
                (int) Json.number(request, "count", 64), Json.number(request, "begin", 0),
                Json.number(request, "end", Long.MAX_VALUE))
                .getMessageList().forEach(message -> messages.add(described(message)));
        } catch (MQClientException e) {
            // The client has no other word for "none".
            if (!String.valueOf(e.getMessage()).contains("no message")) {
                throw e;
            }
        }
        JsonObject answer = new JsonObject();
        answer.add("messages", messages);
        return answer;
    }

    private JsonObject send(JsonObject request) throws Exception {
        String topic = request.get("topic").getAsString();
        Message message = new Message(topic, Base64.getDecoder().decode(request.get("body").getAsString()));
        Json.texts(Json.object(request, "properties"))
            .forEach((name, value) -> MessageAccessor.putProperty(message, name, value));
        int queueId = (int) Json.number(request, "queueId", 0);
        MessageQueue queue = route(topic).stream().filter(one -> one.getQueueId() == queueId).findFirst().orElseThrow();
        SendResult result = producer.send(message, queue);
        JsonObject answer = new JsonObject();
        answer.addProperty("status", result.getSendStatus().toString());
        answer.addProperty("queueOffset", result.getQueueOffset());
        answer.addProperty("uniqueKey", result.getMsgId());
        answer.addProperty("messageId", result.getOffsetMsgId());
        return answer;
    }

    /** A transaction whose producer commits it, rolls it back, or does not know yet. */
    private JsonObject transact(JsonObject request) throws Exception {
        String topic = request.get("topic").getAsString();
        startTransactions(topic);
        Message message = new Message(topic, Base64.getDecoder().decode(request.get("body").getAsString()));
        LocalTransactionState state = LocalTransactionState.valueOf(request.get("state").getAsString());
        JsonObject answer = new JsonObject();
        answer.addProperty("status", transactions.sendMessageInTransaction(message, state).getSendStatus().toString());
        return answer;
    }

    /** How often the producer was asked about each body; from now on it gives these answers. */
    private JsonObject checks(JsonObject request) throws Exception {
        Json.texts(Json.object(request, "outcomes"))
            .forEach((body, state) -> outcomes.put(body, LocalTransactionState.valueOf(state)));
        startTransactions(request.get("topic").getAsString());
        JsonObject counts = new JsonObject();
        checks.forEach(counts::addProperty);
        JsonObject answer = new JsonObject();
        answer.add("checks", counts);
        return answer;
    }

    private void startTransactions(String topic) throws Exception {
        if (transactions != null) {
            return;
        }
        transactions = new TransactionMQProducer("shop");
        transactions.setNamesrvAddr(producer.getNamesrvAddr());
        transactions.setVipChannelEnabled(false);
        transactions.setInstanceName("shop");
        transactions.setSendMsgTimeout(PATIENCE_MS);
        transactions.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = Base64.getEncoder().encodeToString(message.getBody());
                checks.merge(body, 1, Integer::sum);
                return outcomes.getOrDefault(body, LocalTransactionState.UNKNOW);
            }
        });
        transactions.start();
        route(topic);
        // A client tells only the brokers of topics that it knows of its producer group.
        DefaultMQProducerImpl inner = transactions.getDefaultMQProducerImpl();
        String getter = Reflect.has(inner, "getMqClientFactory", 0) ? "getMqClientFactory" : "getmQClientFactory";
        MQClientInstance client = (MQClientInstance) Reflect.call(inner, getter);
        client.updateTopicRouteInfoFromNameServer(topic);
        client.sendHeartbeatToAllBrokerWithLock();
    }

    /** A request that no client has in all versions: code, fields and body as they go over the wire. */
    private JsonObject remote(JsonObject request) throws Exception {
        if (remoting == null) {
            remoting = new NettyRemotingClient(new NettyClientConfig());
            remoting.start();
        }
        RemotingCommand command = RemotingCommand.createRequestCommand((int) Json.number(request, "code", 0), null);
        command.setExtFields(new HashMap<>(Json.texts(Json.object(request, "fields"))));
        command.setBody(Base64.getDecoder().decode(Json.text(request, "body", "")));
        RemotingCommand response = remoting.invokeSync(address, command, PATIENCE_MS);
        JsonObject fields = new JsonObject();
        if (response.getExtFields() != null) {
            response.getExtFields().forEach(fields::addProperty);
        }
        JsonArray messages = new JsonArray();
        if (response.getBody() != null) {
            MessageDecoder.decodes(ByteBuffer.wrap(response.getBody()))
                .forEach(message -> messages.add(described(message)));
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("code", response.getCode());
        answer.addProperty("remark", response.getRemark());
        answer.add("fields", fields);
        answer.add("messages", messages);
        return answer;
    }

    /** A consumer offset, as the broker takes it from a client. */
    private JsonObject commit(JsonObject request) {
        broker.getConsumerOffsetManager().commitOffset("127.0.0.1", request.get("group").getAsString(),
            request.get("topic").getAsString(), (int) Json.number(request, "queueId", 0),
            Json.number(request, "offset", 0));
        return new JsonObject();
    }

    /** What the broker's own manager makes of the file of consumer offsets as it is now. */
    private JsonObject loadOffsets() {
        broker.getConsumerOffsetManager().setOffsetTable(new ConcurrentHashMap<>());
        broker.getConsumerOffsetManager().load();
        JsonObject answer = new JsonObject();
        // A reader of JSON puts what it likes into a map of any type.
        Map<?, ?> table = broker.getConsumerOffsetManager().getOffsetTable();
        JsonObject rows = table == null ? null : new JsonObject();
        if (table != null) {
            table.forEach((key, queues) -> {
                JsonObject row = new JsonObject();
                ((Map<?, ?>) queues).forEach((queue, at) -> row.addProperty(String.valueOf(queue), String.valueOf(at)));
                rows.add(String.valueOf(key), row);
            });
        }
        answer.add("table", rows);
        return answer;
    }

    /** The broker only: the others hold nothing that a later start could see, and end with the process. */
    private JsonObject stop() throws Exception {
        WholeShutdown.stop(broker);
        return new JsonObject();
    }

    /**
     * The topic's queues. A broker that does not yet know its name server when it starts would tell it of them after
     * ten seconds: it is asked to do so at once.
     */
    private List<MessageQueue> route(String topic) throws Exception {
        long deadline = System.currentTimeMillis() + ROUTE_TIMEOUT_MS;
        while (true) {
            try {
                return consumer.fetchSubscribeMessageQueues(topic).stream()
                    .sorted(Comparator.comparingInt(MessageQueue::getQueueId)).collect(Collectors.toList());
            } catch (MQClientException e) {
                if (System.currentTimeMillis() > deadline) {
                    throw e;
                }
                broker.registerBrokerAll(true, false, true);
                Thread.sleep(50);
            }
        }
    }

    private static JsonObject one(MessageExt message) {
        JsonObject answer = new JsonObject();
        answer.add("message", described(message));
        return answer;
    }

    private static JsonObject described(MessageExt message) {
        JsonObject row = new JsonObject();
        row.addProperty("topic", message.getTopic());
        row.addProperty("queueId", message.getQueueId());
        row.addProperty("queueOffset", message.getQueueOffset());
        row.addProperty("physicalOffset", message.getCommitLogOffset());
        row.addProperty("size", message.getStoreSize());
        row.addProperty("body", Base64.getEncoder().encodeToString(message.getBody()));
        row.addProperty("bodyCrc", message.getBodyCRC());
        row.addProperty("flag", message.getFlag());
        row.addProperty("sysFlag", message.getSysFlag());
        row.addProperty("bornTimestamp", message.getBornTimestamp());
        row.addProperty("storeTimestamp", message.getStoreTimestamp());
        row.addProperty("bornHost", host(message.getBornHost()));
        row.addProperty("storeHost", host(message.getStoreHost()));
        row.addProperty("reconsumeTimes", message.getReconsumeTimes());
        row.addProperty("messageId", message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        JsonObject properties = new JsonObject();
        Map<String, String> sorted = new TreeMap<>(message.getProperties());
        sorted.forEach(properties::addProperty);
        row.add("properties", properties);
        return row;
    }

    private static String host(SocketAddress host) {
        InetSocketAddress inet = (InetSocketAddress) host;
        String text = inet.getAddress().getHostAddress();
        return (text.contains(":") ? "[" + text + "]" : text) + ":" + inet.getPort();
    }

    private static void require(boolean condition, String trouble) {
        if (!condition) {
            throw new IllegalStateException(trouble);
        }
    }

    /** A broker also listens two ports below its own. */
    private static int freePort() throws Exception {
        while (true) {
            // Of those that the kernel gives to nobody who connects: one of them would be taken before we listen.
            int port = ThreadLocalRandom.current().nextInt(FIRST_PORT, LAST_PORT);
            try (ServerSocket one = new ServerSocket(port); ServerSocket fast = new ServerSocket(port - 2)) {
                return one.getLocalPort();
            } catch (BindException e) {
                continue;
            }
        }
    }
}
