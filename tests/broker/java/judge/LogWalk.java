package judge;

import com.google.gson.JsonArray;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.store.*;

/** The commitlog from its minimum to its maximum, each step judged by the broker's own record check. */
final class LogWalk {
    private static final String BAD = "bad";
    final JsonArray rows = new JsonArray();
    final List<DispatchRequest> records = new ArrayList<>();
    private final CommitLog log;

    LogWalk(DefaultMessageStore store) throws Exception {
        log = store.getCommitLog();
        long at = store.getMinPhyOffset();
        long end = store.getMaxPhyOffset();
        while (at >= 0 && at < end) {
            SelectMappedBufferResult readable = log.getData(at, false);
            if (readable == null) {
                long next = log.rollNextFile(at);
                rows.add(Json.row(at, next - at, "unreadable"));
                at = next;
                continue;
            }
            try {
                at += step(at, readable);
            } finally {
                readable.release();
            }
        }
    }

    private long step(long at, SelectMappedBufferResult readable) throws Exception {
        DispatchRequest checked = check(readable.getByteBuffer().duplicate(), true);
        String verdict = null;
        if (!checked.isSuccess()) {
            checked = check(readable.getByteBuffer().duplicate(), false);
            verdict = checked.isSuccess() ? "bad-crc" : BAD;
        }
        long size = checked.getMsgSize();
        if (checked.isSuccess() && size == 0) {
            size = log.rollNextFile(at) - at;
            rows.add(Json.row(at, size, "blank"));
            return size;
        }
        if (!checked.isSuccess() && size <= 0) {
            size = readable.getSize();
        }
        if (checked.isSuccess()) {
            records.add(checked);
        }
        if (BAD.equals(verdict)) {
            addBad(at, size);
        } else {
            rows.add(verdict == null ? Json.row(at, size) : Json.row(at, size, verdict));
        }
        return size;
    }

    /** What is no record is one row, however many steps the broker takes over it. */
    private void addBad(long at, long size) {
        JsonArray last = rows.isEmpty() ? new JsonArray() : rows.get(rows.size() - 1).getAsJsonArray();
        if (last.size() == 3 && last.get(2).getAsString().equals(BAD)) {
            rows.set(rows.size() - 1, Json.row(last.get(0), last.get(1).getAsLong() + size, BAD));
        } else {
            rows.add(Json.row(at, size, BAD));
        }
    }

    private DispatchRequest check(ByteBuffer buffer, boolean checkCrc) throws Exception {
        // (buffer, crc, duplicates, body) since 5.0; before, (buffer, crc, body).
        Method four = Reflect.method(log.getClass(), "checkMessageAndReturnSize", 4);
        Object checked = four != null
            ? Reflect.invoke(four, log, buffer, checkCrc, false, true)
            : Reflect.call(log, "checkMessageAndReturnSize", buffer, checkCrc, true);
        return (DispatchRequest) checked;
    }
}
