// Rate limiting with Jedis. To run this file, with the jars of Jedis and its dependencies in a folder:
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] java -cp 'jars/*' Jedis.java

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.stream.Collectors;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisException;

class Jedis {
    record Answer(int status, Map<String, Long> headers) {}

    static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    // Makes the connections for all threads, at the start and not in the first burst. A call waits up to a second for a
    // free connection.
    static JedisPooled connect() {
        // The longest time that a call waits for the reply, in ms. Connecting may take a second.
        int timeout = (int) (1000 * Double.parseDouble(setting("TIMEOUT", "0.1")));
        var config = DefaultJedisClientConfig.builder().connectionTimeoutMillis(1000).socketTimeoutMillis(timeout);
        var address = new HostAndPort("127.0.0.1", Integer.parseInt(setting("REDIS_PORT", "6379")));
        var connections = new ConnectionPoolConfig();
        connections.setMaxTotal(20);
        connections.setMaxIdle(20);
        connections.setMaxWait(Duration.ofSeconds(1));
        var client = new JedisPooled(connections, address, config.build());
        try {
            client.getPool().addObjects(20);
        } catch (JedisException error) {
            System.err.println("no server yet: " + error.getMessage());
        }
        return client;
    }

    // Makes a call, and returns the status and the headers to answer an HTTP request with. A call without a reply is
    // allowed if `fail` is "open", and refused if it is "closed". A call that gets no free connection is refused.
    static Answer throttle(JedisPooled client, String key, long maxBurst, long count, long period, long quantity,
            String fail) {
        if (quantity < 0) throw new IllegalArgumentException("a quantity below zero would give tokens back");
        List<?> answer;
        try {
            answer = (List<?>) client.sendCommand(() -> "CL.THROTTLE".getBytes(), key, "" + maxBurst, "" + count,
                    "" + period, "" + quantity);
        } catch (JedisException error) {
            System.err.println("no limits, failing " + fail + ": " + error.getMessage());
            // The other connections were most likely lost too, or lead to a server that has become a replica.
            boolean readOnly = ("" + error.getMessage()).startsWith("READONLY");
            if (readOnly || error instanceof JedisConnectionException) client.getPool().clear();
            boolean full = error.getCause() instanceof NoSuchElementException;
            boolean allowed = fail.equals("open") && !full;
            return allowed ? new Answer(200, Map.of()) : new Answer(503, Map.of("Retry-After", 1L));
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
        return new Answer(limited == 1 ? 429 : 200, headers);
    }

    public static void main(String[] arguments) {
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
