<?php
// Rate limiting with phpredis. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] php php_redis.php

/** Returns the process's connection, whose last call, if any, was answered. Fork only before the first call. */
function connect(): Redis
{
    $url = parse_url(getenv('REDIS_URL') ?: 'redis://127.0.0.1:6379') + ['port' => 6379, 'user' => ''];
    // The longest time that a call waits for a new connection, and for the reply, in seconds.
    $timeout = (float) (getenv('REDIS_TIMEOUT') ?: 0.1);
    $client = new Redis();
    // pconnect makes a connection that outlives the request: the pool of PHP-FPM.
    $host = ($url['scheme'] === 'rediss' ? 'tls://' : '') . trim($url['host'], '[]');
    $client->connect($host, $url['port'], $timeout, null, 0, $timeout);
    // Before a call, phpredis opens a connection that has ended while idle once more, and not ten times.
    $client->setOption(Redis::OPT_MAX_RETRIES, 1);
    if (isset($url['pass'])) {
        $client->auth([rawurldecode($url['user']) ?: 'default', rawurldecode($url['pass'])]);
    }
    return $client;
}

/** Makes a call. Returns the status and the headers to answer a request with; a call without an answer is refused. */
function throttle(string $key, int $maxBurst, int $count, int $period, int $quantity = 1): array
{
    $quantity >= 0 || throw new ValueError("a quantity cannot be $quantity: it would give tokens back");
    static $client;
    try {
        $client ??= connect();
        $reply = $client->rawCommand('CL.THROTTLE', $key, $maxBurst, $count, $period, $quantity);
        // Whatever else a server or a proxy says is no answer.
        if (!is_array($reply) || count($reply) !== 5 || array_filter($reply, 'is_int') !== $reply) {
            throw new Exception(json_encode($reply ?: $client->getLastError()));
        }
    } catch (Throwable $error) {
        error_log("Redis did not decide: {$error->getMessage()}");
        // The connection may have a late reply, or lead to a server that a failover has made a replica.
        $client?->close();
        $client = null;
        return [503, ['Retry-After' => 1]];
    }
    [$limited, $limit, $remaining, $retryAfter, $reset] = $reply;
    $headers = ['X-RateLimit-Limit' => $limit, 'X-RateLimit-Remaining' => $remaining, 'X-RateLimit-Reset' => $reset];
    if (!$limited) {
        return [200, $headers];
    }
    // A wait of -1 never ends: the call asks for more than the limit, which may be 0.
    return $retryAfter < 0 ? [$limit ? 413 : 403, $headers] : [429, $headers + ['Retry-After' => $retryAfter]];
}

// The limiter allows three at once and one a minute; the last call asks for four tokens.
foreach ([1, 1, 1, 1, 4] as $quantity) {
    [$status, $headers] = throttle('user123', 2, 1, 60, $quantity);
    $lines = array_map(fn ($name, $value) => "$name: $value", array_keys($headers), $headers);
    echo $status, ' ', implode(', ', $lines), "\n";
}
