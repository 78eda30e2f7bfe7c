// Rate limiting with node-redis. To run this file, beside answer.js:
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] node node_redis.js

const { createClient } = require('redis');
const { Connection, TIMEOUT, answer, check, demonstrate } = require('./answer.js');

// A call without a connection fails at once: no call waits until there is one.
function open() {
  const client = createClient({
    socket: {
      host: '127.0.0.1',
      port: Number(process.env.REDIS_PORT ?? 6379),
      connectTimeout: TIMEOUT,
      // Connect again at once, because calls fail until then.
      reconnectStrategy: (attempt) => Math.min(50 * attempt, 500),
    },
    // A call that waited here for a connection would take its tokens too late.
    disableOfflineQueue: true,
  });
  // Without a listener, an error of the connection would end the process.
  client.on('error', (error) => console.error(`redis: ${error.message}`));
  client.connect().catch(() => {});
  return client;
}

function connect() {
  return new Connection(open).ready();
}

// Makes a call. A quota is max_burst, count, period; further quotas follow it. answer.js explains `fail`.
function throttle(connection, key, quotas, fail, quantity = 1) {
  check(quantity);
  // node-redis only sends strings.
  const call = ['CL.THROTTLE', key, ...quotas.slice(0, 3), quantity, ...quotas.slice(3)].map(String);
  return answer(connection, (client) => client.sendCommand(call), fail);
}

async function main() {
  const connection = await connect();
  await demonstrate(throttle, connection);
  connection.close();
}

if (require.main === module) main();
module.exports = { connect, throttle };
