// Rate limiting with node-redis. To run it, beside answer.js:
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] node node_redis.js

const { createClient } = require('redis');
const { answer, demonstrate } = require('./answer.js');

// Connects a client for the whole process. It has one connection, which it makes again if it is lost. Connecting has a
// time limit of its own: a call without a connection fails.
function connect() {
  const client = createClient({
    socket: { host: '127.0.0.1', port: Number(process.env.REDIS_PORT ?? 6379), connectTimeout: 1000 },
    // A call that waited here for a connection would take its tokens too late.
    disableOfflineQueue: true,
  });
  // An error of the connection ends a process that has no listener for it.
  client.on('error', (error) => console.error(`redis: ${error.message}`));
  client.connect().catch(() => {});
  return new Promise((resolve) => {
    client.once('ready', () => resolve(client));
    setTimeout(() => resolve(client), 5000).unref();
  });
}

// Makes a call. A quota is max_burst, count, period; further quotas follow it. answer.js explains `fail`.
function throttle(client, key, quotas, fail, quantity = 1) {
  // node-redis only sends strings.
  const call = ['CL.THROTTLE', key, ...quotas.slice(0, 3), quantity, ...quotas.slice(3)].map(String);
  return answer(() => client.sendCommand(call), fail);
}

async function main() {
  const client = await connect();
  await demonstrate(throttle, client);
  await client.disconnect();
}

if (require.main === module) main();
module.exports = { connect, throttle };
