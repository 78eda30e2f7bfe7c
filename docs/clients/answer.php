<?php
// The HTTP answer to a call of phpredis.php or predis.php. Both include this file, and have two functions: `connect`,
// and `call`, which makes a call on a connection and throws an exception if the reply is an error.

class Full extends Exception
{
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
        $reply = call($client, ['CL.THROTTLE', $key, $maxBurst, $count, $period, $quantity]);
    } catch (Full $error) {
        error_log("refused: {$error->getMessage()}");
        return [503, ['Retry-After' => 1]];
    } catch (Exception $error) {
        // The next call connects anew.
        $client = null;
        error_log("no limits, failing $fail: {$error->getMessage()}");
        return $fail === 'open' ? [200, []] : [503, ['Retry-After' => 1]];
    }
    [$limited, $limit, $remaining, $retryAfter, $resetAfter] = $reply;
    $headers = [
        'X-RateLimit-Limit' => $limit,
        'X-RateLimit-Remaining' => $remaining,
        'X-RateLimit-Reset' => $resetAfter,
    ];
    // The wait is -1 if the call was allowed, or if it asks for more than the limit and will never be allowed.
    if ($retryAfter >= 0) {
        $headers['Retry-After'] = $retryAfter;
    }
    if ($limited) {
        return [$retryAfter < 0 ? 413 : 429, $headers];
    }
    return [200, $headers];
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

/** Answers a request, or prints five answers if the program was started in a shell. */
function main(): void
{
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
}
