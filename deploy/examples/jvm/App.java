import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** App is a service that needs long to start, and works on the leader only. zkelectd tells it its role on 127.0.0.1:8081. */
public class App {
    private static final Pattern TERM = Pattern.compile("\"term\":\"?(\\d+)");
    /** Held for reading by each request that works, and for writing by a change of the role. */
    private static final ReentrantReadWriteLock role = new ReentrantReadWriteLock(true);
    private static long term; // in which this process leads; 0 if it is a standby
    private static volatile boolean warm;

    public static void main(String[] args) throws Exception {
        HttpServer orders = serve(new InetSocketAddress("127.0.0.1", 8081));
        orders.createContext("/warm", request -> answer(request, warm ? 200 : 503, "warm: " + warm));
        orders.createContext("/promote", request -> {
            Matcher order = TERM.matcher(new String(request.getRequestBody().readAllBytes()));
            boolean valid = request.getRequestMethod().equals("POST") && order.find();
            if (valid) change(Long.parseLong(order.group(1)));
            answer(request, valid ? 200 : 400, "promoted: " + valid);
        });
        orders.createContext("/demote", request -> {
            boolean valid = request.getRequestMethod().equals("POST");
            if (valid) change(0);
            answer(request, valid ? 200 : 400, "demoted: " + valid);
        });
        Thread.sleep(1000 * Long.parseLong(System.getenv().getOrDefault("WARM_UP", "20"))); // classes, caches, connections
        HttpServer work = serve(new InetSocketAddress(8080));
        work.createContext("/leader", request -> work(request));
        work.createContext("/", request -> work(request));
        warm = true;
    }

    private static HttpServer serve(InetSocketAddress address) throws IOException {
        HttpServer server = HttpServer.create(address, 0);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
        return server;
    }

    /** change returns when no request works in the old role any more. So a demotion that is answered has ended all work. */
    private static void change(long to) {
        role.writeLock().lock();
        term = to;
        role.writeLock().unlock();
    }

    /** work answers only while this process leads. It would pass the term, the fencing token, to the storage that it writes to. */
    private static void work(HttpExchange request) throws IOException {
        role.readLock().lock();
        try {
            answer(request, term > 0 ? 200 : 503, term > 0 ? System.getenv("ZKELECTD_NODE") + " " + term : "a standby");
        } finally {
            role.readLock().unlock();
        }
    }

    private static void answer(HttpExchange request, int status, String text) throws IOException {
        byte[] body = text.getBytes();
        request.sendResponseHeaders(status, body.length);
        request.getResponseBody().write(body);
        request.close();
    }
}
