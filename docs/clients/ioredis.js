// Rate limiting with ioredis. To run this file, beside answer.js:
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] node ioredis.js

const { Redis } = require('ioredis');
const { Connection, TIMEOUT, answer, check, demonstrate } = require('./answer.js');

// A call without a connection fails at once: no call waits until there is one.
function open() {
  const client = new Redis({
    host: '127.0.0.1',
    port: Number(process.env.REDIS_PORT ?? 6379),
    connectTimeout: TIMEOUT,
    // A call that waited here for a connection would take its tokens too late.
    enableOfflineQueue: false,
    // A call without a reply would take twice if it were sent again when the server is back.
    maxRetriesPerRequest: 0,
    // Calls fail until there is a connection again: make it at once, and send no INFO first. Attempts count from 1.
    enableReadyCheck: false,
    retryStrategy: (attempt) => Math.min(50 * (attempt - 1), 500),
  });
  client.on('error', (error) => console.error(`redis: ${error.message}`));
  return client;
}

function connect() {
  return new Connection(open).ready();
}

// Makes a call. A quota is max_burst, count, period; further quotas follow it. answer.js explains `fail`.
function throttle(connection, key, quotas, fail, quantity = 1) {
  check(quantity);
  const call = ['CL.THROTTLE', key, ...quotas.slice(0, 3), quantity, ...quotas.slice(3)];
  return answer(connection, (client) => client.call(...call), fail);
}

async function main() {
  const connection = await connect();
  await demonstrate(throttle, connection);
  connection.close();
}

if (require.main === module) main();
module.exports = { connect, throttle };
