// Rate limiting with node-redis. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] node node_redis.js

const { once } = require('node:events');
const { setImmediate: turn, setTimeout: sleep } = require('node:timers/promises');
const { ErrorReply, createClient } = require('redis');

// The longest time, in ms, to wait for a reply, and for each step of connecting: TCP, TLS, the password, the database.
const TIMEOUT = Math.ceil(1000 * Number(process.env.REDIS_TIMEOUT || 0.1));
const open = () => createClient({
  url: process.env.REDIS_URL || 'redis://127.0.0.1:6379',
  socket: { connectTimeout: TIMEOUT, reconnectStrategy: false },
  // A call that waited in a queue would take its tokens too late.
  disableOfflineQueue: true,
});
/** The process's client, which has one connection. @type {ReturnType<typeof open> | undefined} */
let client;
/** Resolves to the client when it is connected. @type {Promise<ReturnType<typeof open>> | undefined} */
let connection;

async function connect() {
  const opened = client = open();
  // If a server or firewall closes an idle connection, the next call opens a new one.
  opened.on('error', () => { if (client === opened) close(); });
  opened.connect().catch(() => {}); // once() rejects with the error.
  await once(opened, 'ready', { signal: AbortSignal.timeout(4 * TIMEOUT) });
  return opened;
}

function close() {
  connection = undefined;
  if (client?.isOpen) client.disconnect().catch(() => {});
}

/** @returns {Promise<never>} */
async function tooLate() {
  await sleep(TIMEOUT, undefined, { ref: false });
  await turn(); // Read a reply that has already arrived.
  throw new Error('no reply in time');
}

/** Calls CL.THROTTLE. Resolves to its five integers, six with further quotas, or undefined if Redis did not decide.
 * @type {(key: string, maxBurst: number, count: number, period: number, quantity?: number, ...quotas: number[]) =>
 *   Promise<number[] | undefined>} */
async function throttle(key, maxBurst, count, period, quantity = 1, ...quotas) {
  const numbers = [maxBurst, count, period, quantity, ...quotas];
  if (typeof key !== 'string' || !numbers.every(Number.isSafeInteger)) {
    throw new TypeError('the key must be a string, and all other arguments integers');
  }
  connection ??= connect();
  const own = connection;
  try {
    const call = (await own).sendCommand(['CL.THROTTLE', key, ...numbers.map(String)]);
    const reply = await Promise.race([call, tooLate()]);
    const isRight = Array.isArray(reply) && reply.every(Number.isSafeInteger);
    if (!isRight || reply.length !== (numbers.length > 4 ? 6 : 5)) throw new Error('the reply has an unexpected shape');
    return reply;
  } catch (/** @type {any} */ error) {
    console.error(`Redis did not decide: ${error.message || error.code}`);
    // Close the connection after a failure, but not after an error reply, unless it comes from a replica.
    const isReply = error instanceof ErrorReply && !error.message.startsWith('READONLY');
    if (!isReply && own === connection) close();
    return undefined;
  }
}

// Three calls pass at once, and one more each minute.
async function demonstrate() {
  for (let call = 0; call < 4; call += 1) console.log(await throttle('user123', 2, 1, 60));
  close();
}

if (require.main === module) demonstrate();
module.exports = { get client() { return client; }, close, throttle };
