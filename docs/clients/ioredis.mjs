// Rate limiting with ioredis. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] node ioredis.mjs

import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';

const TIMEOUT = Math.ceil(1000 * Number(process.env.REDIS_TIMEOUT || 0.1)); // in ms
/** The client for the whole process. It uses a single connection. */
export const client = new Redis(process.env.REDIS_URL || 'redis://127.0.0.1:6379', {
  connectTimeout: TIMEOUT,
  // The timeout for a call, including the wait for a connection.
  commandTimeout: TIMEOUT,
  // Close the connection if the server falls silent, or after a READONLY error, which means that it is now a replica.
  // Then try to reconnect every 50 ms.
  socketTimeout: TIMEOUT,
  reconnectOnError: (error) => error.message.startsWith('READONLY'),
  retryStrategy: () => 50,
  // Do not retry: a call that timed out may have taken its token.
  maxRetriesPerRequest: 0,
});
client.on('error', (error) => {
  console.error(`Redis: ${error.message || error.code}`);
  // If SELECT fails, reconnect: otherwise, ioredis would use database 0.
  if (error.command?.name === 'select') client.disconnect(true);
});

/** Resolves to the five integers of CL.THROTTLE's reply, or six if there are further quotas. */
export const throttle = (key, maxBurst, count, period, quantity = 1, ...furtherQuotas) => (
  client.call('CL.THROTTLE', key, maxBurst, count, period, quantity, ...furtherQuotas));

// The quota allows three calls at once, and then one a minute.
async function demonstrate() {
  for (let call = 0; call < 4; call += 1) {
    await throttle('user123', 2, 1, 60).then(console.log, (error) => {
      if (error.message.startsWith('ERR ')) throw error; // ERR means that an argument is wrong.
      console.error(`Redis did not decide: ${error.message}`);
    });
  }
  client.disconnect();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) demonstrate();
