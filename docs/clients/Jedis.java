// Rate limiting with Jedis. To run this file, with the jars of Jedis and its dependencies in a folder:
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] java -cp 'jars/*' Jedis.java

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisException;

class Jedis {
    record Answer(int status, Map<String, Long> headers) {}

    static final int CONNECTIONS = 20;
    // The longest time that a call waits for a new connection, and for the reply, in ms.
    static final int TIMEOUT = (int) (1000 * Double.parseDouble(setting("TIMEOUT", "0.1")));
    // A place for each connection. A call waits up to a second for one.
    static final Semaphore PLACES = new Semaphore(CONNECTIONS);
    // How many calls in a row got no reply, and when the last call was made, in ns.
    static final AtomicInteger UNANSWERED = new AtomicInteger();
    static final AtomicLong ASKED = new AtomicLong();

    static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    // Makes the connections for all threads, at the start and not in the first burst.
    static JedisPooled connect() {
        var config = DefaultJedisClientConfig.builder().timeoutMillis(TIMEOUT);
        var address = new HostAndPort("127.0.0.1", Integer.parseInt(setting("REDIS_PORT", "6379")));
        // A pool has 8 connections unless told, and a call waits for one without end: PLACES bounds the wait.
        var connections = new ConnectionPoolConfig();
        connections.setMaxTotal(CONNECTIONS);
        connections.setMaxIdle(CONNECTIONS);
        var client = new JedisPooled(connections, address, config.build());
        try {
            client.getPool().addObjects(CONNECTIONS);
        } catch (JedisException error) {
            System.err.println("no server yet: " + error.getMessage());
        }
        return client;
    }

    // Makes a call, and returns the status and the headers to answer an HTTP request with. A call without a reply is
    // allowed if `fail` is "open", and refused if it is "closed". A call that gets no place is refused.
    static Answer throttle(JedisPooled client, String key, long maxBurst, long count, long period, long quantity,
            String fail) throws InterruptedException {
        if (quantity < 0) throw new IllegalArgumentException("a quantity below zero would give tokens back");
        var refused = new Answer(503, Map.of("Retry-After", 1L));
        if (!PLACES.tryAcquire(1, TimeUnit.SECONDS)) return refused;
        List<?> answer;
        try {
            // A server that has answered none of these calls is silent: only one call per TIMEOUT still asks it.
            if (UNANSWERED.get() >= CONNECTIONS && System.nanoTime() - ASKED.get() < 1_000_000L * TIMEOUT) {
                throw new JedisConnectionException("the server is silent");
            }
            ASKED.set(System.nanoTime());
            answer = (List<?>) client.sendCommand(() -> "CL.THROTTLE".getBytes(), key, "" + maxBurst, "" + count,
                    "" + period, "" + quantity);
            UNANSWERED.set(0);
        } catch (JedisException error) {
            System.err.println("no limits, failing " + fail + ": " + error.getMessage());
            boolean lost = error instanceof JedisConnectionException;
            UNANSWERED.updateAndGet(row -> lost ? row + 1 : 0);
            // The other connections were most likely lost too, or lead to a server that has become a replica.
            if (lost || ("" + error.getMessage()).startsWith("READONLY")) client.getPool().clear();
            return fail.equals("open") ? new Answer(200, Map.of()) : refused;
        } finally {
            PLACES.release();
        }
        long limited = (Long) answer.get(0);
        long limit = (Long) answer.get(1);
        long remaining = (Long) answer.get(2);
        long retryAfter = (Long) answer.get(3);
        long resetAfter = (Long) answer.get(4);
        var headers = new LinkedHashMap<String, Long>();
        headers.put("X-RateLimit-Limit", limit);
        headers.put("X-RateLimit-Remaining", remaining);
        headers.put("X-RateLimit-Reset", resetAfter);
        // The wait is -1 if the call was allowed, or if it asks for more than the limit and will never be allowed.
        if (retryAfter >= 0) headers.put("Retry-After", retryAfter);
        if (limited == 1) return new Answer(retryAfter < 0 ? 413 : 429, headers);
        return new Answer(200, headers);
    }

    public static void main(String[] arguments) throws InterruptedException {
        try (var client = connect()) {
            // The limiter allows three at once and one a minute; the last call asks for four tokens.
            for (long quantity : new long[] {1, 1, 1, 1, 4}) {
                var answer = throttle(client, "user123", 2, 1, 60, quantity, setting("FAIL", "open"));
                var headers = answer.headers().entrySet().stream();
                var lines = headers.map(header -> header.getKey() + ": " + header.getValue());
                System.out.println(answer.status() + " " + lines.collect(Collectors.joining(", ")));
            }
        }
    }
}
