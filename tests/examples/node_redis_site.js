// The application's client: node-redis.

const { setTimeout: sleep } = require('node:timers/promises');
const { createClient } = require('redis');

const client = createClient({
  url: 'redis://localhost:6379',
  socket: { connectTimeout: 1000 },
  // A queued call would take its token too late.
  disableOfflineQueue: true,
});
client.on('error', console.error);
client.connect().catch(() => {});
const sendCommand = (...words) => client.sendCommand(words);

// node-redis waits for a silent server without end, and does not leave a replica: ask each second, and connect again.
setInterval(async () => {
  const answer = client.del('redis-cell:watch').catch((error) => error.message);
  const state = await Promise.race([answer, sleep(1000, 'silent', { ref: false })]);
  if (!/^(silent|READONLY|The client is offline)/.test(state)) return;
  client.destroy();
  client.connect().catch(() => {});
}, 1000).unref();

module.exports = { client, sendCommand };
