import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.URLEncoder;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Lets a program work only while the zkelectd daemon of its host leads, under a part of the leader's lease.
 *
 * <pre>
 * var leader = new Zkelectd(Path.of("/run/zkelectd/api.sock"), "billing");
 * while (true) {
 *     leader.runWhileLeading(stop -> {
 *         while (!stop.requested()) {
 *             if (leader.isLeader()) write(leader.token(), ...);
 *         }
 *     });
 * }
 * </pre>
 *
 * The lease ends by the clock: no daemon kills the program. So it must ask isLeader() before each step that no other host
 * may do, and pass token() to storage that can refuse older ones, because it can be suspended between question and step.
 *
 * <p>It needs Java 16, Linux and the daemon's unix socket, and nothing else. Java has no clock that goes on while the host
 * is suspended (System.nanoTime does not), so /proc/uptime is read.
 */
public final class Zkelectd {
    /** Work that runs while this host leads. */
    @FunctionalInterface
    public interface Work {
        void run(Stop stop) throws Exception;
    }

    /** The daemon refuses the request, such as one for an unknown group. */
    public static final class RefusedException extends IOException {
        RefusedException(String reason) {
            super(reason);
        }
    }

    /** Whether the work must stop. It says so before the lease ends; the rest is for the work to return in. */
    public static final class Stop {
        private final Lease lease;
        private final CountDownLatch asked = new CountDownLatch(1);

        private Stop(Lease lease) {
            this.lease = lease;
        }

        public boolean requested() {
            return asked.getCount() == 0 || lease.left() <= lease.stopBefore;
        }

        /** Waits until the work must stop, or for some milliseconds, and returns requested(). */
        public boolean await(long millis) throws InterruptedException {
            asked.await(millis, TimeUnit.MILLISECONDS);
            return requested();
        }
    }

    private static final class Lease {
        final String id;
        final long token;
        volatile long end; // on this process's clock
        // How long before the end the work must stop. It grows with what is left after an extension, but never shrinks:
        // else a lease that ZooKeeper does not extend would be handed out again with ever less time to stop.
        volatile long stopBefore;
        /** At most what this clock is ahead of the daemon's: they may be in different time namespaces. */
        private long offset = Long.MIN_VALUE;

        Lease(Answer answer) {
            id = answer.text("lease");
            token = answer.number("token");
        }

        void update(Answer answer, boolean fixed) {
            if (!fixed) {
                stopBefore = Math.max(stopBefore, answer.number("lease_left_ns") / 4);
            }
            offset = Math.max(offset, answer.before - answer.number("boottime_ns"));
            end = answer.number("lease_end_ns") + offset;
        }

        long left() {
            long until = end;
            return until - latest(); // the clock is read last
        }
    }

    /** An answer of the daemon: a flat JSON object. */
    private record Answer(Map<String, String> fields, long before) {
        String text(String name) {
            return fields.getOrDefault(name, "");
        }

        long number(String name) {
            return fields.containsKey(name) ? Long.parseLong(fields.get(name)) : 0;
        }

        boolean is(String name) {
            return text(name).equals("true");
        }
    }

    // The possessive quantifiers keep the stack small: a value may have 1024 characters that JSON escapes.
    private static final Pattern FIELD = Pattern.compile("\"(\\w+)\":(?:\"([^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+)\"|([^,}\\s]+))");
    private static final long MILLIS = 1_000_000, WAIT = 10_000 * MILLIS, ANSWER = 2_000 * MILLIS, RETRY = 100;

    private final Path socket;
    private final String group;
    private final long stopBefore;
    private final boolean bound;
    private final AtomicBoolean running = new AtomicBoolean();
    private volatile Lease lease; // null unless work runs
    private Lease last; // under which work has run last

    /** Asks the daemon at a unix socket about a group, with its slot as in ingest/3; null for the daemon's only one. */
    public Zkelectd(Path socket, String group) {
        this(socket, group, 0, true);
    }

    /**
     * stopBefore is how many milliseconds before the end of a lease that is not extended the work must stop: less than half
     * of the lease; 0 for a quarter. Set bound to false if the work goes on in other processes when this one is dead.
     */
    public Zkelectd(Path socket, String group, long stopBefore, boolean bound) {
        this.socket = socket;
        this.group = group;
        this.stopBefore = stopBefore * MILLIS;
        this.bound = bound;
    }

    /** Returns whether work runs whose lease is valid now, by the clock and not by what the daemon has said last. */
    public boolean isLeader() {
        return token() != 0;
    }

    /** Returns the fencing token of the lease that is valid now; 0 for none. It grows with each leadership. */
    public long token() {
        Lease l = lease;
        return l != null && l.left() > 0 ? l.token : 0;
    }

    /** Waits until this host leads, also while no daemon answers, and runs the work. When it returns, others may lead. */
    public void runWhileLeading(Work work) throws Exception {
        if (!running.compareAndSet(false, true)) {
            throw new IllegalStateException("work runs already");
        }
        try {
            Lease l = last = await();
            Stop stop = new Stop(l);
            Thread extending = new Thread(() -> extend(l, stop), "zkelectd");
            extending.setDaemon(true);
            extending.start();
            lease = l;
            try {
                work.run(stop);
            } finally {
                lease = null;
                stop.asked.countDown();
                giveBack(l); // which also ends the thread's request: nobody can extend it any more
            }
        } finally {
            running.set(false);
        }
    }

    private Lease await() throws IOException, InterruptedException {
        while (true) {
            try {
                Lease l = take();
                if (l != null) {
                    return l;
                }
            } catch (RefusedException e) {
                throw e;
            } catch (IOException e) {
                Thread.sleep(RETRY);
            }
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
        }
    }

    /** Returns a lease with enough time left, null after a while. */
    private Lease take() throws IOException {
        Answer a = ask(null, WAIT, WAIT + ANSWER);
        if (!a.is("leading")) {
            return null;
        }
        Lease l = new Lease(a);
        l.stopBefore = last != null && last.token == l.token ? last.stopBefore : stopBefore;
        boolean taken = false;
        try {
            for (long wait = 0; a.is("leading") && !a.is("stop"); wait = WAIT) {
                l.update(a, stopBefore != 0);
                if (l.left() > l.stopBefore * 5 / 4) { // else it might be the rest of one whose offset was less exact
                    taken = true;
                    return l;
                }
                // At first without a wait: the time before a request that has waited says little.
                a = ask(l.id, wait, wait + ANSWER);
            }
            return null;
        } finally {
            if (!taken) {
                giveBack(l);
            }
        }
    }

    /** Extends the lease until the work must stop, or has ended. */
    private void extend(Lease l, Stop stop) {
        try {
            while (!stop.requested()) {
                long wait = Math.max(MILLIS, Math.min(WAIT, l.left() - l.stopBefore));
                try {
                    Answer a = ask(l.id, wait, wait);
                    if (!a.text("lease").equals(l.id)) {
                        return; // a daemon that has started again does not know it: it ends
                    }
                    l.update(a, stopBefore != 0);
                    if (a.is("stop")) {
                        return;
                    }
                } catch (IOException e) {
                    stop.await(Math.min(RETRY, wait / MILLIS));
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            stop.asked.countDown();
        }
    }

    private void giveBack(Lease l) {
        try {
            send("DELETE", "lease=" + l.id, ANSWER);
        } catch (IOException e) {
            // The others wait until its end.
        }
    }

    private Answer ask(String id, long wait, long limit) throws IOException {
        return send("GET", "wait=" + wait / MILLIS + "ms&bound=" + bound + (id == null ? "" : "&lease=" + id), limit);
    }

    private Answer send(String method, String query, long limit) throws IOException {
        if (group != null) {
            query += "&group=" + URLEncoder.encode(group, StandardCharsets.UTF_8);
        }
        long before = earliest();
        String response = exchange(method + " /v1/lease?" + query + " HTTP/1.0\r\n\r\n", System.nanoTime() + limit);
        String[] parts = response.split("\r\n\r\n", 2), status = response.split(" ", 3);
        if (parts.length < 2 || !status[1].matches("[245]\\d\\d")) {
            throw new IOException("not an answer of zkelectd");
        }
        Map<String, String> fields = new HashMap<>();
        for (Matcher m = FIELD.matcher(parts[1]); m.find();) {
            fields.put(m.group(1), m.group(2) != null ? m.group(2) : m.group(3));
        }
        switch (status[1].charAt(0)) {
            case '4' -> throw new RefusedException(fields.get("error"));
            case '5' -> throw new IOException(fields.get("error"));
            default -> {
                return new Answer(fields, before);
            }
        }
    }

    /** Sends a request, and returns what comes until the daemon closes the connection. */
    private String exchange(String request, long deadline) throws IOException {
        try (SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
                Selector selector = Selector.open()) {
            channel.connect(UnixDomainSocketAddress.of(socket));
            channel.write(ByteBuffer.wrap(request.getBytes(StandardCharsets.US_ASCII)));
            channel.configureBlocking(false);
            channel.register(selector, SelectionKey.OP_READ);
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            ByteBuffer part = ByteBuffer.allocate(4096);
            while (true) {
                long left = (deadline - System.nanoTime()) / MILLIS;
                if (left <= 0 || all.size() > 65536) {
                    throw new IOException("no answer in time");
                }
                selector.select(left);
                selector.selectedKeys().clear();
                int n = channel.read(part);
                if (n < 0) {
                    return all.toString(StandardCharsets.UTF_8);
                }
                all.write(part.array(), 0, n);
                part.clear();
            }
        }
    }

    /** Returns the time on CLOCK_BOOTTIME in ns, or up to 10 ms earlier: the kernel rounds it down. */
    private static long earliest() throws IOException {
        String text = Files.readString(Path.of("/proc/uptime"));
        return Long.parseLong(text.substring(0, text.indexOf(' ')).replace(".", "")) * 10 * MILLIS;
    }

    /** Returns the time on CLOCK_BOOTTIME in ns, or up to 10 ms later. If it cannot be read, every lease is over. */
    private static long latest() {
        try {
            return earliest() + 10 * MILLIS;
        } catch (IOException | RuntimeException e) {
            return Long.MAX_VALUE;
        }
    }
}
