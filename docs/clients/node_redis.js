// Rate limiting with node-redis. To run this file, beside limits.js:
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=share] node node_redis.js

const { createClient } = require('redis');
const { Connection, SERVER, TIMEOUT, demonstrate } = require('./limits.js');

function open() {
  const stopped = new AbortController();
  const client = createClient({
    // Connect again at once, because calls fail until then.
    socket: { ...SERVER, signal: stopped.signal, reconnectStrategy: (attempt) => Math.min(50 * attempt, 500) },
    // A call that waited here for a connection would take its tokens too late.
    disableOfflineQueue: true,
    // Nor does a call wait longer to be sent: five seconds in node-redis 6.
    commandOptions: { timeout: TIMEOUT },
  });
  // A client that is closed while it connects would keep its connection for ever.
  client.once('end', () => stopped.abort());
  client.connect().catch(() => {});
  return client;
}

// node-redis only sends strings.
const connect = () => new Connection(open, (client, words) => client.sendCommand(words.map(String))).ready();

if (require.main === module) connect().then(demonstrate);
module.exports = { connect };
