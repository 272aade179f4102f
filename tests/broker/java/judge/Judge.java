package judge;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Real RocketMQ stores behind a line protocol: one JSON request a line on stdin, one JSON answer a line on stdout.
 * Requests name an "op"; all but those of Oracle also name a "store", the caller's word for one opened directory.
 */
public final class Judge {
    private final Map<String, StoreSession> sessions = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream protocol = System.out;
        System.setOut(System.err);
        Judge judge = new Judge();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            JsonObject answer;
            try {
                answer = judge.answer(request);
            } catch (Throwable e) {
                e.printStackTrace();
                answer = new JsonObject();
                answer.addProperty("error", StoreSession.describe(e));
            }
            answer.add("id", request.get("id"));
            protocol.println(Json.line(answer));
            protocol.flush();
            if (Json.text(request, "op", "").equals("halt")) {
                Runtime.getRuntime().halt(0);
            }
        }
        // A store may have left threads that never end; whoever closed stdin does not want to wait for them.
        Runtime.getRuntime().halt(0);
    }

    private JsonObject answer(JsonObject request) throws Exception {
        String op = request.get("op").getAsString();
        if (op.equals("halt")) {
            return new JsonObject();
        }
        if (op.startsWith("oracle.")) {
            return Oracle.answer(op.substring("oracle.".length()), request);
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
            case "stopDispatch":
                return session.stopDispatch();
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
            default:
                throw new IllegalArgumentException("unknown op " + op);
        }
    }
}
