package judge;

import java.util.Set;
import java.util.concurrent.FutureTask;
import org.apache.rocketmq.broker.BrokerController;

/** A clean stop of a broker without its pauses for requests that may be under way: here there are none. */
final class WholeShutdown {
    private static final long LOOK_EVERY_MS = 10;
    /** Pauses of two seconds and more. An interrupt ends each of them at its start, before anything else is done. */
    private static final Set<String> PAUSES = Set.of(
        "org.apache.rocketmq.store.DefaultMessageStore.shutdown",
        "org.apache.rocketmq.broker.processor.PopBufferMergeService.run",
        "org.apache.rocketmq.remoting.netty.NettyRemotingAbstract$NettyEventExecutor.run");

    private WholeShutdown() {
    }

    static void stop(BrokerController broker) throws Exception {
        StoreSession.endScheduledTasks(broker.getMessageStore());
        FutureTask<Void> stop = new FutureTask<>(broker::shutdown, null);
        Thread stopping = new Thread(stop, "judge-shutdown");
        stopping.start();
        while (stopping.isAlive()) {
            Thread.getAllStackTraces().forEach((thread, stack) -> {
                if (isPaused(stack)) {
                    thread.interrupt();
                }
            });
            stopping.join(LOOK_EVERY_MS);
        }
        stop.get();
    }

    private static boolean isPaused(StackTraceElement[] stack) {
        for (StackTraceElement frame : stack) {
            if (frame.getClassName().startsWith("org.apache.rocketmq.")) {
                return PAUSES.contains(frame.getClassName() + "." + frame.getMethodName());
            }
            if (!frame.getClassName().startsWith("java.") && !frame.getClassName().startsWith("jdk.")) {
                return false;
            }
        }
        return false;
    }
}
