package judge;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** One JSON request a line on stdin, one JSON answer a line on stdout; "halt" ends the process as a crash would. */
final class Protocol {
    /** Answers one request. */
    interface Answering {
        JsonObject answer(JsonObject request) throws Exception;
    }

    private Protocol() {
    }

    static void serve(Answering program) throws Exception {
        PrintStream protocol = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            boolean halt = request.get("op").getAsString().equals("halt");
            JsonObject answer = halt ? new JsonObject() : answer(program, request);
            answer.add("id", request.get("id"));
            protocol.println(Json.line(answer));
            protocol.flush();
            if (halt) {
                break;
            }
        }
        // Not exit: a crash runs no shutdown hooks, and threads that never end are not waited for.
        Runtime.getRuntime().halt(0);
    }

    private static JsonObject answer(Answering program, JsonObject request) {
        try {
            return program.answer(request);
        } catch (Throwable e) {
            e.printStackTrace();
            JsonObject answer = new JsonObject();
            answer.addProperty("error", StoreSession.describe(e));
            return answer;
        }
    }
}
