import java.util.Arrays;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;

/** Prints a line for each check and remembers whether one failed. */
final class Check {
    interface Body { void run() throws Exception; }

    /** How many replicas the topics have: --cluster asks for 3. */
    static final short REPLICAS = Short.parseShort(System.getenv().getOrDefault("COMPAT_REPLICAS", "1"));

    final String name;
    final String runId = String.format("%06x", new java.util.Random().nextInt(1 << 24));
    private boolean failed;

    Check(String name) { this.name = name; }

    String topic(String what) { return name.replace('/', '-') + "-" + what + "-" + runId; }

    void check(String what, Body body) {
        String only = System.getenv("COMPAT_ONLY");
        if (only != null && !what.contains(only)) return;
        try {
            body.run();
            print("ok  " + name + " " + what);
        } catch (Throwable error) {
            error.printStackTrace();
            String reason = String.valueOf(error).replaceAll("\\s+", " ");
            print("FAIL " + name + " " + what + ": " + reason.substring(0, Math.min(300, reason.length())));
            failed = true;
        }
    }

    /** As `check`; the body may call `restart(how)`, so it is skipped where nothing can restart the broker. */
    void checkWithRestart(String what, Body body) {
        String only = System.getenv("COMPAT_ONLY");
        if (only != null && !what.contains(only)) return;
        if (System.getenv("OTTLA_RESTART") == null) print("skip " + name + " " + what + ": OTTLA_RESTART names no command that restarts the broker");
        else check(what, body);
    }

    static void restart(String how) throws Exception {
        Process process = new ProcessBuilder(System.getenv("OTTLA_RESTART"), how)
            .redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        equal(process.waitFor(), 0, "the restart's exit status");
    }

    /** Ends the process: a client thread that hangs must not hold the run. */
    void exit() {
        System.out.flush();
        Runtime.getRuntime().halt(failed ? 1 : 0);
    }

    private static final java.io.PrintStream OUT = System.out;   // the tools' checks redirect System.out
    private static void print(String line) { OUT.println(line); OUT.flush(); }

    static void equal(Object got, Object wanted, String what) {
        if (!String.valueOf(wanted).equals(String.valueOf(got)) && !java.util.Objects.deepEquals(got, wanted))
            throw new AssertionError(what + ": got " + shorten(got) + ", wanted " + shorten(wanted));
    }

    static void that(boolean condition, String what) {
        if (!condition) throw new AssertionError(what);
    }

    private static String shorten(Object o) {
        String s = o instanceof byte[] ? Arrays.toString((byte[]) o) : String.valueOf(o);
        return s.length() > 200 ? s.substring(0, 200) + "..." : s;
    }

    static void eventually(String what, int seconds, Callable<Boolean> condition) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        while (!condition.call()) {
            if (System.nanoTime() > end) throw new AssertionError(what + ": not within " + seconds + " s");
            Thread.sleep(30);
        }
    }

    static void raises(Class<? extends Throwable> wanted, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            if (wanted.isInstance(cause)) return;
            throw new AssertionError("failed with " + cause + ", wanted " + wanted.getSimpleName(), error);
        }
        throw new AssertionError("succeeded, wanted " + wanted.getSimpleName());
    }
}
