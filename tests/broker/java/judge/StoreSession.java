package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.File;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.store.DefaultMessageStore;

/** One store directory from load to shutdown. Trouble in a step is part of the answer: it is what a test asks about. */
final class StoreSession {
    private static final long DISPATCH_TIMEOUT_MS = 20_000;
    private static final int QUIET_LOOKS = 3;
    private static final long ELECTION_TIMEOUT_MS = 15_000;
    private static final long SHUTDOWN_TIMEOUT_MS = 30_000;

    final DefaultMessageStore store;
    private final StoreFactory factory;
    private final boolean hooked;
    private final String lastExit;

    StoreSession(JsonObject request) throws Exception {
        factory = new StoreFactory(request);
        lastExit = new File(factory.root, "abort").exists() ? "abnormal" : "clean";
        store = factory.construct();
        if (Json.present(request, "clockOffsetMs")) {
            Acts.setClock(store, request.get("clockOffsetMs").getAsLong());
        }
        hooked = BrokerHooks.register(store, factory);
    }

    static String describe(Throwable trouble) {
        StringBuilder text = new StringBuilder(trouble.toString());
        for (Throwable cause = trouble.getCause(); cause != null; cause = cause.getCause()) {
            text.append("; caused by ").append(cause);
        }
        return text.toString();
    }

    JsonObject load() throws Exception {
        JsonObject answer = new JsonObject();
        answer.addProperty("version", MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION));
        answer.add("configIgnored", factory.configIgnored);
        answer.addProperty("hooks", hooked);
        answer.addProperty("lastExit", lastExit);
        answer.addProperty("load", false);
        answer.add("loadTrouble", null);
        long began = System.currentTimeMillis();
        try {
            answer.addProperty("load", store.load());
        } catch (Throwable e) {
            answer.addProperty("loadTrouble", describe(e));
        }
        answer.addProperty("loadMs", System.currentTimeMillis() - began);
        JsonObject afterLoad = new JsonObject();
        afterLoad.add("offsets", offsets());
        JsonArray queues = new JsonArray();
        for (Queue queue : Queue.known(store)) {
            JsonObject row = queue.named();
            row.addProperty("min", queue.min());
            row.addProperty("max", queue.max());
            row.addProperty("maxPhysicOffset", queue.maxPhysicalOffset());
            queues.add(row);
        }
        afterLoad.add("queues", queues);
        answer.add("afterLoad", afterLoad);
        return answer;
    }

    JsonObject start() throws Exception {
        JsonObject answer = new JsonObject();
        answer.add("startTrouble", null);
        long began = System.currentTimeMillis();
        try {
            store.start();
        } catch (Throwable e) {
            answer.addProperty("startTrouble", describe(e));
        }
        answer.addProperty("startMs", System.currentTimeMillis() - began);
        if (answer.get("startTrouble").isJsonNull()) {
            answer.add("dispatched", waitDispatched().get("dispatched"));
        }
        return answer;
    }

    JsonObject put(JsonArray messages) throws Exception {
        Messages encoder = new Messages(store);
        JsonArray answers = new JsonArray();
        for (JsonElement message : messages) {
            JsonObject answer;
            try {
                answer = encoder.put(message.getAsJsonObject());
            } catch (Exception e) {
                answer = new JsonObject();
                answer.addProperty("trouble", describe(e));
            }
            answers.add(answer);
        }
        waitAllocated();
        JsonObject answer = new JsonObject();
        answer.add("answers", answers);
        return answer;
    }

    /** Waits for the file being made ahead: a process that ends before it has its length leaves an empty one (4.9 refuses it). */
    private void waitAllocated() throws Exception {
        Map<?, ?> requests = (Map<?, ?>) Reflect.field(Reflect.field(store, "allocateMappedFileService"), "requestTable");
        long deadline = System.currentTimeMillis() + DISPATCH_TIMEOUT_MS;
        for (Object request : requests.values()) {
            while (Reflect.field(request, "mappedFile") == null && System.currentTimeMillis() < deadline) {
                Thread.sleep(2);
            }
        }
    }

    /** Puts the same message over and over, and says how long the real store takes for it. */
    JsonObject putRate(JsonObject request) throws Exception {
        Messages encoder = new Messages(store);
        JsonObject message = request.getAsJsonObject("message");
        long count = request.get("count").getAsLong();
        long began = System.nanoTime();
        for (long i = 0; i < count; i++) {
            encoder.putUnchecked(message);
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("seconds", (System.nanoTime() - began) / 1e9);
        return answer;
    }

    JsonObject waitDispatched() throws Exception {
        long deadline = System.currentTimeMillis() + DISPATCH_TIMEOUT_MS;
        while (store.dispatchBehindBytes() > 0 && System.currentTimeMillis() < deadline) {
            Thread.sleep(2);
        }
        for (int quiet = 0; quiet < QUIET_LOOKS && System.currentTimeMillis() < deadline; quiet++) {
            if (!isCommitted()) {
                quiet = -1;
                Thread.sleep(2);
            }
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("dispatched", store.dispatchBehindBytes() <= 0);
        answer.add("offsets", offsets());
        return answer;
    }

    /**
     * Waits until the only member of a DLedger group has elected itself and knows its whole log to be committed: before
     * that it dispatches nothing of what it does not know to be committed, and may read less than it has.
     */
    JsonObject waitCommitted() throws Exception {
        if (!Reflect.has(store.getCommitLog(), "getdLedgerServer", 0)) {
            return waitDispatched(); // a version without DLedger, which reads none of it
        }
        Object server = Reflect.call(store.getCommitLog(), "getdLedgerServer");
        Object member = Reflect.call(server, "getMemberState");
        Object entries = Reflect.call(server, "getDLedgerStore");
        long deadline = System.currentTimeMillis() + ELECTION_TIMEOUT_MS;
        boolean committed = false;
        while (!committed && System.currentTimeMillis() < deadline) {
            Thread.sleep(5);
            long last = ((Number) Reflect.call(entries, "getLedgerEndIndex")).longValue();
            committed = (Boolean) Reflect.call(member, "isLeader")
                && ((Number) Reflect.call(entries, "getCommittedIndex")).longValue() >= last;
        }
        JsonObject answer = waitDispatched();
        answer.addProperty("committed", committed);
        return answer;
    }

    /** Whether what was dispatched is in RocksDB: from 5.4.0 on a thread of its own writes the queues there. */
    private boolean isCommitted() throws Exception {
        Object queues = Reflect.has(store, "getQueueStore", 0) ? Reflect.call(store, "getQueueStore") : null;
        if (queues != null && Reflect.hasField(queues, "rocksDBConsumeQueueStore")) {
            queues = Reflect.field(queues, "rocksDBConsumeQueueStore");
        }
        if (queues == null || !Reflect.hasField(queues, "groupCommitService")) {
            return true;
        }
        Object service = Reflect.field(queues, "groupCommitService");
        Collection<?> waiting = (Collection<?>) Reflect.field(service, "buffer");
        return waiting.isEmpty() && ((Collection<?>) Reflect.field(service, "requests")).isEmpty();
    }

    /** What a broker does once its member of a DLedger group leads (DLedgerRoleChangeHandler). */
    JsonObject lead() throws Exception {
        Reflect.call(store, "recoverTopicQueueTable");
        return new JsonObject();
    }

    /** From here on nothing that is put reaches a queue or the index: the state of a broker killed before dispatch. */
    JsonObject stopDispatch() throws Exception {
        JsonObject answer = waitDispatched();
        Reflect.call(Reflect.field(store, "reputMessageService"), "shutdown");
        return answer;
    }

    /** What makes a store refuse puts: its disk is full, or another put has held the lock for so many milliseconds. */
    JsonObject setCondition(JsonObject request) throws Exception {
        if (Json.flag(request, "diskFull", false)) {
            store.getRunningFlags().getAndMakeDiskFull();
        } else {
            store.getRunningFlags().getAndMakeDiskOK();
        }
        long busy = Json.number(request, "busyMs", 0);
        Reflect.setField(store.getCommitLog(), "beginTimeInLock", busy == 0 ? 0 : System.currentTimeMillis() - busy);
        return new JsonObject();
    }

    /** Takes the index out of what a record is dispatched to, as if the store were killed between queue and index. */
    JsonObject stopIndex() throws Exception {
        Collection<?> dispatchers = (Collection<?>) Reflect.field(store, "dispatcherList");
        dispatchers.removeIf(one -> one.getClass().getSimpleName().contains("BuildIndex"));
        return new JsonObject();
    }

    /**
     * Stops cleanly. The broker sleeps one to three seconds in it for requests under way, of which there are none here:
     * an interrupt ends that sleep unless the caller is patient, once no scheduled task can be disturbed by it.
     */
    JsonObject shutdown(boolean patient) throws Exception {
        JsonObject answer = new JsonObject();
        answer.add("shutdownTrouble", null);
        long began = System.currentTimeMillis();
        Thread closing = closing(patient, answer);
        closing.join(SHUTDOWN_TIMEOUT_MS);
        if (closing.isAlive()) {
            answer.addProperty("shutdownTrouble", "does not end");
        }
        answer.addProperty("shutdownMs", System.currentTimeMillis() - began);
        answer.addProperty("abortAfter", new File(factory.root, "abort").exists());
        return answer;
    }

    /** Stops in the background, for a caller whom this directory does not interest any more. */
    JsonObject abandon() {
        closing(false, new JsonObject());
        return new JsonObject();
    }

    private Thread closing(boolean patient, JsonObject answer) {
        Thread closing = new Thread(() -> {
            try {
                if (!patient) {
                    endScheduledTasks(store);
                    Thread.currentThread().interrupt();
                }
                store.shutdown();
            } catch (Throwable e) {
                answer.addProperty("shutdownTrouble", describe(e));
            }
        }, "judge-shutdown");
        closing.setDaemon(true);
        closing.start();
        return closing;
    }

    static void endScheduledTasks(Object store) throws Exception {
        for (Field field : DefaultMessageStore.class.getDeclaredFields()) {
            if (field.getType() == ScheduledExecutorService.class) {
                field.setAccessible(true);
                ScheduledExecutorService tasks = (ScheduledExecutorService) field.get(store);
                if (tasks != null) {
                    tasks.shutdown();
                    tasks.awaitTermination(SHUTDOWN_TIMEOUT_MS, TimeUnit.MILLISECONDS);
                }
            }
        }
    }

    JsonObject offsets() throws Exception {
        JsonObject offsets = new JsonObject();
        offsets.addProperty("min", store.getMinPhyOffset());
        offsets.addProperty("max", store.getMaxPhyOffset());
        offsets.addProperty("confirm", store.getConfirmOffset());
        offsets.addProperty("dispatchBehindBytes", store.dispatchBehindBytes());
        Object files = Reflect.field(store.getCommitLog(), "mappedFileQueue");
        offsets.addProperty("flushed", (Number) Reflect.call(files, "getFlushedWhere"));
        return offsets;
    }

    /** "1.2.3.4:10911" or "[::1]:10911". */
    static InetSocketAddress address(String text) throws Exception {
        int colon = text.lastIndexOf(':');
        return new InetSocketAddress(
            InetAddress.getByName(text.substring(0, colon)), Integer.parseInt(text.substring(colon + 1)));
    }
}
