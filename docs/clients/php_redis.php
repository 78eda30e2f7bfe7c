<?php
declare(strict_types=1);
// Rate limiting with phpredis. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] php php_redis.php

/** Returns a connection for this request. After a failover, pconnect would stay connected to the old primary. */
function connect(): Redis
{
    $url = parse_url(getenv('REDIS_URL') ?: 'redis://127.0.0.1:6379') + ['port' => 6379, 'user' => '', 'path' => ''];
    $tls = match ($url['scheme']) { 'redis' => '', 'rediss' => 'tls://' };
    // The timeout, in seconds, for connecting and for each reply.
    $timeout = (float) (getenv('REDIS_TIMEOUT') ?: 0.1);
    $client = new Redis();
    @$client->connect($tls . trim($url['host'], '[]'), $url['port'], $timeout, null, 0, $timeout);
    // If the connection is broken, the next call tries to reconnect once, not ten times. phpredis does not retry calls.
    $client->setOption(Redis::OPT_MAX_RETRIES, 1);
    if (isset($url['pass'])) {
        $client->auth([rawurldecode($url['user']) ?: 'default', rawurldecode($url['pass'])]);
    }
    $database = (int) trim($url['path'], '/');
    if ($database && !$client->select($database)) {
        throw new RedisException($client->getLastError());
    }
    return $client;
}

/** Returns the five integers of CL.THROTTLE's reply. Throws a RedisException if Redis did not decide. */
function throttle(Redis $client, string $key, int $maxBurst, int $count, int $period, int $quantity = 1): array
{
    $reply = $client->rawCommand('CL.THROTTLE', $key, $maxBurst, $count, $period, $quantity);
    // For some error replies, phpredis returns false. An error that begins with ERR means that an argument is wrong.
    $error = $reply ? '' : $client->getLastError();
    $isMistake = preg_match('/^ERR (?!max number of clients)/', $error);
    return $reply ?: throw $isMistake ? new ValueError($error) : new RedisException($error);
}

// The quota allows three calls at once, and then one a minute.
for ($call = 0; $call < 4; $call++) try {
    $client ??= connect();
    echo json_encode(throttle($client, 'user123', 2, 1, 60)), "\n";
} catch (RedisException $error) {
    $client = null; // phpredis does not reconnect after a timeout, so open a new connection.
    error_log("Redis did not decide: {$error->getMessage()}");
}
