// Rate limiting with node-redis. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] node node_redis.js

const { ErrorReply, createClient } = require('redis');

// The longest time, in ms, for a reply, and for each step to a connection: TCP, TLS, the password, the database.
const TIMEOUT = 1000 * (process.env.REDIS_TIMEOUT || 0.1);
// The client for the whole process, with one connection; its opening, and the moment at which that was over.
let client;
let opening;
let opened = -Infinity;
let logged = -Infinity;

function leave() {
  opened = Infinity;
  if (client?.isOpen) client.disconnect();
}

// Opens another connection in the place of the last one, unless that is being opened, or has just been.
function open() {
  if (performance.now() < opened + 50) return;
  leave();
  client = createClient({
    url: process.env.REDIS_URL || 'redis://127.0.0.1:6379',
    socket: { connectTimeout: TIMEOUT, reconnectStrategy: false },
    // A call that waited for a connection would take its tokens too late.
    disableOfflineQueue: true,
  });
  // A connection may end while nothing calls, as one that a server or a firewall finds idle.
  client.on('error', (error) => { log(error); setTimeout(() => { if (!client.isReady) open(); }, 100); });
  opening = inTime(4 * TIMEOUT, client.connect()).catch(log).finally(() => { opened = performance.now(); });
}

function inTime(timeout, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    // A reply that has arrived is read before.
    timer = setTimeout(() => setImmediate(reject, new Error('no reply in time')), timeout);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// Calls CL.THROTTLE once. Resolves to its five integers, or six if there are further quotas, or undefined: Redis did
// not decide, whatever went wrong.
async function throttle(key, maxBurst, count, period, quantity = 1, ...furtherQuotas) {
  if (typeof key !== 'string') throw new TypeError('a key is a text');
  const words = [key, maxBurst, count, period, quantity, ...furtherQuotas];
  try {
    const reply = await inTime(TIMEOUT, client.sendCommand(['CL.THROTTLE', ...words].map(String)));
    const isRight = Array.isArray(reply) && reply.every(Number.isSafeInteger);
    if (!isRight || reply.length !== (words.length > 5 ? 6 : 5)) throw new Error('the reply has another shape');
    return reply;
  } catch (error) {
    if (client.isReady) log(error); // Otherwise, the client says why.
    // A connection whose call failed is left. An error of the server is an answer, but that of a replica.
    if (!(error instanceof ErrorReply) || error.message.startsWith('READONLY')) open();
  }
}

function log(error) {
  if (performance.now() < logged + 1000) return; // A line a second is enough.
  logged = performance.now();
  console.error(`Redis did not decide: ${error.message || error.code}`);
}

open();
const ready = opening;
const close = () => opening.then(leave);

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
