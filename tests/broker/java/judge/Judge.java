package judge;

import com.google.gson.JsonObject;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Real RocketMQ stores behind the line protocol. Requests name an "op"; all but those of Oracle and Settings also name a "store", the
 * caller's word for one opened directory.
 */
public final class Judge {
    private final Map<String, StoreSession> sessions = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        Protocol.serve(new Judge()::answer);
    }

    private JsonObject answer(JsonObject request) throws Exception {
        String op = request.get("op").getAsString();
        if (op.startsWith("oracle.")) {
            return Oracle.answer(op.substring("oracle.".length()), request);
        }
        if (op.startsWith("settings.")) {
            return op.equals("settings.names") ? Settings.names() : Settings.applied(Json.array(request, "files"));
        }
        String name = request.get("store").getAsString();
        if (op.equals("open")) {
            StoreSession session = new StoreSession(request);
            sessions.put(name, session);
            return session.load();
        }
        StoreSession session = sessions.get(name);
        if (session == null) {
            throw new IllegalStateException("no open store " + name);
        }
        switch (op) {
            case "start":
                return session.start();
            case "put":
                return session.put(Json.array(request, "messages"));
            case "putRate":
                return session.putRate(request);
            case "waitDispatched":
                return session.waitDispatched();
            case "waitCommitted":
                return session.waitCommitted();
            case "stopDispatch":
                return session.stopDispatch();
            case "lead":
                return session.lead();
            case "setCondition":
                return session.setCondition(request);
            case "stopIndex":
                return session.stopIndex();
            case "deleteTopic":
                return Acts.deleteTopic(session.store, request);
            case "expire":
                return Acts.expire(session.store, request);
            case "read":
                return new Reader(session).everything(request);
            case "get":
                return new Reader(session).get(request);
            case "query":
                return new Reader(session).query(request);
            case "offsetByTime":
                return new Reader(session).offsetByTime(request);
            case "shutdown":
                sessions.remove(name);
                return session.shutdown(Json.flag(request, "patient", false));
            case "abandon":
                sessions.remove(name);
                return session.abandon();
            default:
                throw new IllegalArgumentException("unknown op " + op);
        }
    }
}
