<?php
// Rate limiting with phpredis. To run this file, beside answer.php:
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] php phpredis.php
// To serve it by 20 processes: PHP_CLI_SERVER_WORKERS=20 php -S 127.0.0.1:8080 phpredis.php

require __DIR__ . '/answer.php';

/** Connects. If the server has the most clients that it accepts, it closes new connections; try again for a second. */
function connect(): Redis
{
    // The longest time that a call waits for a new connection, and for the reply, in seconds.
    $timeout = (float) (getenv('TIMEOUT') ?: 0.1);
    for ($ends = microtime(true) + 1; microtime(true) < $ends; usleep(10000)) {
        $client = new Redis();
        // pconnect makes a connection that outlives the request: the pool of PHP-FPM.
        $client->connect('127.0.0.1', (int) (getenv('REDIS_PORT') ?: 6379), $timeout, null, 0, $timeout);
        $start = microtime(true);
        try {
            if ($client->ping() || !str_contains($client->getLastError(), 'max number of clients')) {
                return $client;
            }
        } catch (RedisException $error) {
            // A server with too many clients closes the connection at once; one that is stuck is silent until the
            // timeout. An error of the server, such as NOAUTH or LOADING, begins with a code.
            $isReply = preg_match('/^[A-Z]+ /', $error->getMessage());
            if ($isReply || microtime(true) - $start >= $timeout) {
                throw $error;
            }
        }
    }
    throw new Full('the server accepts no more clients');
}

function call(Redis $client, array $words): array
{
    $reply = false;
    try {
        $reply = $client->rawCommand(...$words);
        return $reply === false ? throw new RedisException($client->getLastError()) : $reply;
    } finally {
        // One of pconnect would stay open, and may lead to a server that a failover has made a replica.
        if ($reply === false) {
            $client->close();
        }
    }
}

main();
