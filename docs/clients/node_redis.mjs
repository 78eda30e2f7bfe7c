// Rate limiting with node-redis. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] node node_redis.mjs

import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { createClient } from 'redis';

const TIMEOUT = Math.ceil(1000 * Number(process.env.REDIS_TIMEOUT || 0.1)); // in ms
/** The client for the whole process. It uses a single connection. */
export const client = createClient({
  url: process.env.REDIS_URL || 'redis://127.0.0.1:6379',
  // Try to reconnect every 50 ms. Close a connection that has been silent for five seconds. PING keeps idle ones open.
  // If the server stops replying, refuse further calls once 1,000 are pending.
  socket: { connectTimeout: TIMEOUT, reconnectStrategy: 50, socketTimeout: 5_000 },
  pingInterval: 2_000,
  commandsQueueMaxLength: 1_000,
  // Do not queue calls while disconnected: they would take their tokens too late. node-redis does not retry calls.
  disableOfflineQueue: true,
});
client.on('error', (error) => console.error(`Redis: ${error.message || error.code}`));
client.connect().catch(() => {});

/** Resolves to the five integers of CL.THROTTLE's reply, or six if there are further quotas. */
export async function throttle(key, maxBurst, count, period, quantity = 1, ...furtherQuotas) {
  const words = [maxBurst, count, period, quantity, ...furtherQuotas].map(String);
  const call = client.sendCommand(['CL.THROTTLE', key, ...words]);
  // node-redis has no timeout for replies, so use a timer. setImmediate lets a reply that has arrived in time be read.
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => setImmediate(reject, new Error('no reply in time')), TIMEOUT);
  });
  return Promise.race([call, late]).finally(() => clearTimeout(timer));
}

// The quota allows three calls at once, and then one a minute.
async function demonstrate() {
  for (let call = 0; call < 4; call += 1) {
    await throttle('user123', 2, 1, 60).then(console.log, (error) => {
      if (error.message.startsWith('ERR ')) throw error; // ERR means that an argument is wrong.
      console.error(`Redis did not decide: ${error}`);
    });
  }
  client.destroy();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) once(client, 'ready').then(demonstrate, demonstrate);
