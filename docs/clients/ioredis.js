// Rate limiting with ioredis. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] node ioredis.js

const { Redis } = require('ioredis');

// The longest time, in ms, that a client waits for a new connection, and a call for the reply.
const TIMEOUT = 1000 * (process.env.REDIS_TIMEOUT || 0.1);
let logged = -1000;
// One client, with one connection, for the whole process.
const client = new Redis(process.env.REDIS_URL || 'redis://127.0.0.1:6379', {
  connectTimeout: TIMEOUT,
  commandTimeout: TIMEOUT,
  // A call that waited for a connection would take its tokens too late; one that is sent again would take twice.
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  // A connection is left if a call gets no reply, or if it leads to a replica, as after a failover.
  socketTimeout: TIMEOUT,
  reconnectOnError: (error) => error.message.startsWith('READONLY'),
  retryStrategy: () => 50,
  enableReadyCheck: false,
  // A boolean of another server stays one, and is no number 0.
  replyMapping: 'resp3',
});
// Resolves when the first connection is there, or has failed.
const ready = new Promise((resolve) => client.once('ready', resolve).once('error', resolve));
client.on('error', log);
const close = () => client.disconnect();

// Calls CL.THROTTLE once. Resolves to its five integers, or six if there are further quotas, or undefined: Redis did
// not decide, whatever went wrong.
async function throttle(key, maxBurst, count, period, quantity = 1, ...furtherQuotas) {
  if (typeof key !== 'string') throw new TypeError('a key is a text');
  const words = [key, maxBurst, count, period, quantity, ...furtherQuotas];
  try {
    const reply = await client.call('CL.THROTTLE', ...words);
    const isRight = Array.isArray(reply) && reply.every(Number.isSafeInteger);
    if (!isRight || reply.length !== (words.length > 5 ? 6 : 5)) throw new Error('the reply has another shape');
    return reply;
  } catch (error) {
    if (client.status === 'ready') log(error); // Otherwise, the client says why.
    return undefined;
  }
}

function log(error) {
  if (performance.now() < logged + 1000) return; // A line a second is enough.
  logged = performance.now();
  console.error(`Redis did not decide: ${error.message || error.code}`);
}

// Returns the status and the headers to answer a request with.
function answer(reply) {
  if (!reply) return [503, { 'Retry-After': 1 }];
  const [limited, limit, remaining, retryAfter, resetAfter] = reply;
  const headers = { 'X-RateLimit-Limit': limit, 'X-RateLimit-Remaining': remaining, 'X-RateLimit-Reset': resetAfter };
  if (!limited) return [200, headers];
  // A wait of -1 never ends: the call asks for more than the limit, which may be 0.
  return retryAfter < 0 ? [limit ? 413 : 403, headers] : [429, { ...headers, 'Retry-After': retryAfter }];
}

// The limiter allows three at once and one a minute; the last call asks for four tokens.
async function demonstrate() {
  await ready;
  for (const quantity of [1, 1, 1, 1, 4]) {
    const [status, headers] = answer(await throttle('user123', 2, 1, 60, quantity));
    console.log(status, Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join(', '));
  }
  close();
}

if (require.main === module) demonstrate();
module.exports = { answer, close, ready, throttle };
