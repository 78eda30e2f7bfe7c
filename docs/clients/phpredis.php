<?php
// Rate limiting with phpredis. To run this file: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] php phpredis.php
// To serve it by 20 processes: PHP_CLI_SERVER_WORKERS=20 php -S 127.0.0.1:8080 phpredis.php

class Full extends Exception
{
}

/** Connects. If the server has the most clients that it accepts, it closes new connections; try again for a second. */
function connect(): Redis
{
    // The longest time that a call waits for the reply, in seconds. Connecting may take a second.
    $timeout = (float) (getenv('TIMEOUT') ?: 0.1);
    for ($ends = microtime(true) + 1; microtime(true) < $ends; usleep(10000)) {
        $client = new Redis();
        // pconnect makes a connection that outlives the request: the pool of PHP-FPM.
        $client->connect('127.0.0.1', (int) (getenv('REDIS_PORT') ?: 6379), 1, null, 0, $timeout);
        $start = microtime(true);
        try {
            if ($client->ping() || !str_contains($client->getLastError(), 'max number of clients')) {
                return $client;
            }
        } catch (RedisException $error) {
            // A server with too many clients closes the connection at once; one that is stuck is silent until the
            // timeout.
            if (microtime(true) - $start >= $timeout) {
                throw $error;
            }
        }
    }
    throw new Full('the server accepts no more clients');
}

/**
 * Makes a call, and returns the status and the headers to answer an HTTP request with. A call without a reply is
 * allowed if $fail is 'open', and refused if it is 'closed'. A call is refused if the server accepts no more clients.
 */
function throttle(string $key, int $maxBurst, int $count, int $period, string $fail, int $quantity = 1): array
{
    if ($quantity < 0) {
        throw new ValueError('a quantity below zero would give tokens back');
    }
    static $client;
    try {
        $client ??= connect();
        $answer = $client->rawCommand('CL.THROTTLE', $key, $maxBurst, $count, $period, $quantity);
        if ($answer === false) {
            throw new RedisException($client->getLastError());
        }
    } catch (RedisException | Full $error) {
        // The next call connects anew.
        $client = null;
        error_log("no limits, failing $fail: {$error->getMessage()}");
        $allowed = $fail === 'open' && !$error instanceof Full;
        return $allowed ? [200, []] : [503, ['Retry-After' => 1]];
    }
    [$limited, $limit, $remaining, $retryAfter, $resetAfter] = $answer;
    $headers = [
        'X-RateLimit-Limit' => $limit,
        'X-RateLimit-Remaining' => $remaining,
        'X-RateLimit-Reset' => $resetAfter,
    ];
    // The wait is -1 if the call was allowed, or if it asks for more than the limit and will never be allowed.
    if ($retryAfter >= 0) {
        $headers['Retry-After'] = $retryAfter;
    }
    return [$limited ? 429 : 200, $headers];
}

/** Returns an IPv4 address, or the 2^64 addresses around one of IPv6: a customer has all of them. */
function network(string $address): string
{
    $bytes = @inet_pton($address);
    $mapped = "\0\0\0\0\0\0\0\0\0\0\xff\xff";
    if ($bytes === false || strlen($bytes) === 4) {
        return $address;
    }
    if (str_starts_with($bytes, $mapped)) {
        return inet_ntop(substr($bytes, 12));
    }
    return inet_ntop(str_pad(substr($bytes, 0, 8), 16, "\0")) . '/64';
}

if (PHP_SAPI !== 'cli') {
    // The key is a name and an address; docs/clients.md has other keys, under "Which key".
    [$name, $fail] = strtok($_SERVER['REQUEST_URI'], '?') === '/' ? ['hello', 'open'] : ['login', 'closed'];
    [$status, $headers] = throttle("$name:" . network($_SERVER['REMOTE_ADDR']), 2, 1, 60, $fail);
    http_response_code($status);
    foreach ($headers as $header => $value) {
        header("$header: $value");
    }
    exit($status === 200 ? "Hello\n" : "Try again later\n");
}

// The limiter allows three at once and one a minute; the last call asks for four tokens.
foreach ([1, 1, 1, 1, 4] as $quantity) {
    [$status, $headers] = throttle('user123', 2, 1, 60, getenv('FAIL') ?: 'open', $quantity);
    $lines = array_map(fn ($name, $value) => "$name: $value", array_keys($headers), $headers);
    echo $status, ' ', implode(', ', $lines), "\n";
}
