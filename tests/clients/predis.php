<?php
// Rate limiting with Predis. As a program: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] php predis.php

// With Composer: require 'vendor/autoload.php';
require 'Predis/Autoloader.php';
Predis\Autoloader::register();

function connect(): Predis\Client
{
    // How long a call waits for the server, in seconds.
    $timeout = (float) (getenv('TIMEOUT') ?: 0.1);
    return new Predis\Client([
        'host' => '127.0.0.1',
        'port' => (int) (getenv('REDIS_PORT') ?: 6379),
        'timeout' => $timeout,
        'read_write_timeout' => $timeout,
    ]);
}

/** Makes a call, and returns the status and the headers to answer an HTTP request with. */
function throttle(string $key, int $maxBurst, int $count, int $period, int $quantity = 1): array
{
    static $client;
    try {
        // It connects with the first call, and after an error with the next.
        $client ??= connect();
        $call = ['CL.THROTTLE', $key, $maxBurst, $count, $period, $quantity];
        $answer = $client->executeRaw($call, $isError);
        if ($isError) {
            throw new Predis\Response\ServerException($answer);
        }
    } catch (Predis\PredisException $error) {
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
