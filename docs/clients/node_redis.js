// Rate limiting with node-redis. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] node node_redis.js

const { ErrorReply, createClient } = require('redis');

// The longest time, in ms, that a client waits for a new connection, and a call for the reply.
const TIMEOUT = 1000 * (process.env.REDIS_TIMEOUT || 0.1);
// The client for the whole process, with one connection, and the moment at which that was there, or had failed.
let client;
let opened;
let logged = -1000;

// Opens another connection in the place of the last one.
function open() {
  if (client?.isOpen) client.disconnect();
  opened = Infinity;
  client = createClient({
    url: process.env.REDIS_URL || 'redis://127.0.0.1:6379',
    socket: { connectTimeout: TIMEOUT, reconnectStrategy: false },
    // A call that waited for a connection would take its tokens too late.
    disableOfflineQueue: true,
  });
  client.on('error', log);
  // TCP, TLS, the password and the database's number take a wait each.
  return inTime(4 * TIMEOUT, client.connect()).catch(log).finally(() => { opened = performance.now(); });
}

function inTime(timeout, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    // What has arrived is read before.
    timer = setTimeout(() => setImmediate(reject, new Error('no reply in time')), timeout);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// Calls CL.THROTTLE once. Resolves to its five integers, or six if there are further quotas, or undefined: Redis did
// not decide, whatever went wrong.
async function throttle(key, maxBurst, count, period, quantity = 1, ...furtherQuotas) {
  const words = [key, maxBurst, count, period, quantity, ...furtherQuotas];
  try {
    const reply = await inTime(TIMEOUT, client.sendCommand(['CL.THROTTLE', ...words].map(String)));
    const isRight = Array.isArray(reply) && reply.every(Number.isSafeInteger);
    if (!isRight || reply.length !== (words.length > 5 ? 6 : 5)) throw new Error('the reply has another shape');
    return reply;
  } catch (error) {
    if (client.isReady) log(error); // Otherwise, the client says why.
    // A connection whose call failed is left. An error of the server is an answer, but that of a replica.
    const isReply = error instanceof ErrorReply && !error.message.startsWith('READONLY');
    if (!isReply && performance.now() > opened + 50) open();
    return undefined;
  }
}

function log(error) {
  if (performance.now() < logged + 1000) return; // A line a second is enough.
  logged = performance.now();
  console.error(`Redis did not decide: ${error.message}`);
}

const ready = open();

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
  client.disconnect();
}

if (require.main === module) demonstrate();
module.exports = { answer, close: () => client.disconnect(), ready, throttle };
