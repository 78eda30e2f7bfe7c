// Rate limiting with node-redis. To run this file, beside limits.js:
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=share] node node_redis.js

const { createClient } = require('redis');
const { Connection, TIMEOUT, demonstrate } = require('./limits.js');

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
    // Nor does a call wait longer to be sent: five seconds in node-redis 6.
    commandOptions: { timeout: TIMEOUT },
  });
  // Without a listener, an error of the connection would end the process.
  client.on('error', (error) => console.error(`redis: ${error.message}`));
  client.connect().catch(() => {});
  return client;
}

// node-redis only sends strings.
const send = (client, words) => client.sendCommand(words.map(String));

function connect() {
  return new Connection(open, send).ready();
}

if (require.main === module) connect().then(demonstrate);
module.exports = { connect };
