<?php
// Rate limiting with Predis. To run this file, beside answer.php:
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] php predis.php
// To serve it by 20 processes: PHP_CLI_SERVER_WORKERS=20 php -S 127.0.0.1:8080 predis.php

// Composer's autoloader is another file: require 'vendor/autoload.php';
require 'Predis/Autoloader.php';
Predis\Autoloader::register();

require __DIR__ . '/answer.php';

/** Connects. If the server has the most clients that it accepts, it closes new connections; try again for a second. */
function connect(): Predis\Client
{
    // The longest time that a call waits for a new connection, and for the reply, in seconds.
    $timeout = (float) (getenv('TIMEOUT') ?: 0.1);
    for ($ends = microtime(true) + 1; microtime(true) < $ends; usleep(10000)) {
        $client = new Predis\Client([
            'host' => '127.0.0.1',
            'port' => (int) (getenv('REDIS_PORT') ?: 6379),
            'timeout' => $timeout,
            'read_write_timeout' => $timeout,
        ]);
        $client->connect();
        $start = microtime(true);
        try {
            if (!str_contains($client->executeRaw(['PING']), 'max number of clients')) {
                return $client;
            }
        } catch (Predis\Connection\ConnectionException $error) {
            // A server with too many clients closes the connection at once; one that is stuck is silent until the
            // timeout.
            if (microtime(true) - $start >= $timeout) {
                throw $error;
            }
        }
    }
    throw new Full('the server accepts no more clients');
}

function call(Predis\Client $client, array $words): array
{
    // Predis knows no method for this command.
    $reply = $client->executeRaw($words, $isError);
    return $isError ? throw new Predis\Response\ServerException($reply) : $reply;
}

main();
