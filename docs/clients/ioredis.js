// Rate limiting with ioredis. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] node ioredis.js

const { once } = require('node:events');
const { Redis } = require('ioredis');

// The longest time, in ms, to wait for a reply, and for each step of connecting: TCP, TLS, the password, the database.
const TIMEOUT = Math.ceil(1000 * Number(process.env.REDIS_TIMEOUT || 0.1));
// One client for the whole process, with one connection.
const client = new Redis(process.env.REDIS_URL || 'redis://127.0.0.1:6379', {
  connectTimeout: TIMEOUT,
  // A queued call would take its tokens too late. A retry would take them twice.
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  commandTimeout: TIMEOUT,
  // After a failover, the connection may lead to a replica.
  reconnectOnError: (error) => error.message.startsWith('READONLY'),
  // Reconnect immediately, and after a failure, at most 20 times a second.
  retryStrategy: (times) => (times > 1 ? 50 : 0),
  enableReadyCheck: false,
  // Do not convert a boolean to the number 0.
  replyMapping: 'resp3',
});
client.on('error', () => {}); // Each call logs its own error.
/** Resolves when the connection is open. @type {Promise<any> | undefined} */
let connecting;

async function connected() {
  const signal = AbortSignal.timeout(4 * TIMEOUT);
  connecting ??= once(client, 'ready', { signal }).finally(() => { connecting = undefined; });
  await connecting;
}

/** Calls CL.THROTTLE. Resolves to its five integers, six with further quotas, or undefined if Redis did not decide.
 * @type {(key: string, maxBurst: number, count: number, period: number, quantity?: number, ...quotas: number[]) =>
 *   Promise<number[] | undefined>} */
async function throttle(key, maxBurst, count, period, quantity = 1, ...quotas) {
  const numbers = [maxBurst, count, period, quantity, ...quotas];
  if (typeof key !== 'string' || !numbers.every(Number.isSafeInteger)) {
    throw new TypeError('the key must be a string, and all other arguments integers');
  }
  try {
    if (client.status !== 'ready' || !client.stream.writable) await connected();
    const reply = await client.call('CL.THROTTLE', key, ...numbers);
    const isRight = Array.isArray(reply) && reply.every(Number.isSafeInteger);
    if (!isRight || reply.length !== (numbers.length > 4 ? 6 : 5)) throw new Error('the reply has an unexpected shape');
    return reply;
  } catch (/** @type {any} */ error) {
    console.error(`Redis did not decide: ${error.message || error.code}`);
    // A late reply must not be mistaken for another call's.
    if (error.message === 'Command timed out') client.stream.destroy();
    return undefined;
  }
}

// Three calls pass at once, and one more each minute.
async function demonstrate() {
  for (let call = 0; call < 4; call += 1) console.log(await throttle('user123', 2, 1, 60));
  client.disconnect();
}

if (require.main === module) demonstrate();
module.exports = { client, close: () => client.disconnect(), throttle };
