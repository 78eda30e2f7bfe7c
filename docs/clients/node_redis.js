// Rate limiting with node-redis. To run this file, beside limits.js:
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=share] node node_redis.js

const { createClient } = require('redis');
const { Connection, SERVER, TIMEOUT, demonstrate } = require('./limits.js');

// node-redis 4 throws at a reply that no server gives, such as *-7, which would end the process.
function onread(length, buffer) {
  try {
    this.emit('data', Buffer.from(buffer.subarray(0, length)));
  } catch (error) {
    this.destroy(error);
  }
}

function open() {
  const client = createClient({
    socket: { ...SERVER, onread: { buffer: Buffer.alloc(65536), callback: onread } },
    // A call that waited here for a connection, or longer to be sent, would take its tokens too late.
    disableOfflineQueue: true,
    commandOptions: { timeout: TIMEOUT },
  });
  client.connect().catch(() => {});
  return client;
}

// node-redis only sends strings.
const connect = () => new Connection(open, (client, words) => client.sendCommand(words.map(String))).ready();

if (require.main === module) connect().then(demonstrate);
module.exports = { connect };
