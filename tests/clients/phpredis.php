<?php
// Rate limiting with phpredis. As a program: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] php phpredis.php

function connect(): Redis
{
    // How long a call waits for the server, in seconds.
    $timeout = (float) (getenv('TIMEOUT') ?: 0.1);
    $client = new Redis();
    // With pconnect, the connection outlives the request: the pool of PHP-FPM.
    $client->connect('127.0.0.1', (int) (getenv('REDIS_PORT') ?: 6379), $timeout, null, 0, $timeout);
    return $client;
}

/** Makes a call, and returns the status and the headers to answer an HTTP request with. */
function throttle(string $key, int $maxBurst, int $count, int $period, int $quantity = 1): array
{
    static $client;
    try {
        $client ??= connect();
        $answer = $client->rawCommand('CL.THROTTLE', $key, $maxBurst, $count, $period, $quantity);
        if ($answer === false) {
            throw new RedisException($client->getLastError());
        }
    } catch (RedisException $error) {
        // The next call connects anew.
        $client = null;
        // What a call without an answer decides: "open" allows it, "closed" refuses it.
        $fail = getenv('FAIL') ?: 'open';
        error_log("no limits, failing $fail: {$error->getMessage()}");
        return $fail === 'open' ? [200, []] : [503, ['Retry-After' => 1]];
    }
    [$limited, $limit, $remaining, $retryAfter, $resetAfter] = $answer;
    $headers = [
        'X-RateLimit-Limit' => $limit,
        'X-RateLimit-Remaining' => $remaining,
        'X-RateLimit-Reset' => $resetAfter,
    ];
    // -1 where the call was allowed, and where it asks for more than the limit and never will be.
    if ($retryAfter >= 0) {
        $headers['Retry-After'] = $retryAfter;
    }
    return [$limited ? 429 : 200, $headers];
}

// Three at once and one a minute; the last call asks for four.
foreach ([1, 1, 1, 1, 4] as $quantity) {
    [$status, $headers] = throttle('user123', 2, 1, 60, $quantity);
    $lines = array_map(fn ($name, $value) => "$name: $value", array_keys($headers), $headers);
    echo $status, ' ', implode(', ', $lines), "\n";
}
