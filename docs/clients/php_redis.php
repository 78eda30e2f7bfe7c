<?php
declare(strict_types=1);
// Rate limiting with phpredis. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] php php_redis.php

function connect(): Redis
{
    $url = parse_url(getenv('REDIS_URL') ?: 'redis://127.0.0.1:6379') + ['port' => 6379, 'user' => ''];
    // The longest time, in seconds, to wait for a new connection, and for the reply.
    $timeout = (float) (getenv('REDIS_TIMEOUT') ?: 0.1);
    $client = new Redis();
    // In PHP-FPM, use pconnect to keep the connection for later requests. @ suppresses a warning, not the exception.
    $host = ($url['scheme'] === 'rediss' ? 'tls://' : '') . trim($url['host'], '[]');
    @$client->connect($host, $url['port'], $timeout, null, 0, $timeout);
    // If the server has closed an idle connection, phpredis reconnects before the call: once, not ten times.
    $client->setOption(Redis::OPT_MAX_RETRIES, 1);
    if (isset($url['pass'])) {
        $client->auth([rawurldecode($url['user']) ?: 'default', rawurldecode($url['pass'])]);
    }
    return $client;
}

/** Calls CL.THROTTLE, and returns its five integers. Throws a RedisException if Redis did not decide. */
function throttle(string $key, int $maxBurst, int $count, int $period, int $quantity = 1): array
{
    $quantity >= 0 || throw new ValueError("a quantity of $quantity would give tokens back");
    // The process's connection. Fork only before the first call.
    static $idle;
    $client = $idle ?? connect();
    $idle = null; // Not reused after a failure: a late reply may arrive, or the server may be a replica.
    $reply = $client->rawCommand('CL.THROTTLE', $key, $maxBurst, $count, $period, $quantity);
    if (!is_array($reply) || count($reply) !== 5 || array_filter($reply, 'is_int') !== $reply) {
        throw new RedisException('not a reply of CL.THROTTLE: ' . json_encode($reply ?: $client->getLastError()));
    }
    $idle = $client;
    return $reply;
}

// Three calls pass at once, and one more each minute.
for ($call = 0; $call < 4; $call++) try {
    echo json_encode(throttle('user123', 2, 1, 60)), "\n";
} catch (RedisException $error) {
    error_log("Redis did not decide: {$error->getMessage()}");
}
