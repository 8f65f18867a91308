import java.nio.file.Files;
import java.nio.file.Path;

/** The application of the tests, see application in app_test.go. */
public final class App {
    static long now() throws Exception {
        return Long.parseLong(Files.readString(Path.of("/proc/uptime")).split(" ")[0].replace(".", "")) * 10_000_000;
    }

    public static void main(String[] args) throws Exception {
        Zkelectd leader = new Zkelectd(Path.of(args[0]), args[1]);
        long limit = Long.parseLong(args[2]);
        boolean stubborn = args[3].equals("true");
        while (true) {
            leader.runWhileLeading(stop -> {
                long token = leader.token(), first = 0, last = 0, previous = 0;
                while (stubborn || first == 0 || !stop.requested()) {
                    long at = now();
                    if (!leader.isLeader()) {
                        break;
                    }
                    if (previous != 0 && at - previous > limit) {
                        System.out.println("violation " + (at - previous));
                    }
                    if (first == 0) {
                        first = at;
                        System.out.println("lead " + token);
                    }
                    last = previous = at;
                    Thread.sleep(1);
                }
                for (int i = 0; stubborn && i < 200; i++) {
                    Thread.sleep(1);
                    if (leader.isLeader()) {
                        System.out.println("violation: the lease is valid again");
                    }
                }
                System.out.println("led " + first + " " + last + " " + token);
            });
            if (leader.isLeader()) {
                System.out.println("violation: without a lease");
            }
        }
    }
}
