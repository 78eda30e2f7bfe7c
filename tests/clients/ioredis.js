// Rate limiting with ioredis. As a program: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] node ioredis.js

const { Redis } = require('ioredis');

// How long a call waits for the server, in ms.
const TIMEOUT = 1000 * (process.env.TIMEOUT ?? 0.1);
// What a call without an answer decides: 'open' allows it, 'closed' refuses it.
const FAIL = process.env.FAIL ?? 'open';

// A client for the whole process, which connects, and connects again, by itself.
function connect() {
  const client = new Redis({
    host: '127.0.0.1',
    port: Number(process.env.REDIS_PORT ?? 6379),
    connectTimeout: TIMEOUT,
    commandTimeout: TIMEOUT,
    // A call fails while there is no connection: kept for later, it would take later.
    enableOfflineQueue: false,
    // Sent again when the server is back, a call that had no answer would take again.
    maxRetriesPerRequest: 0,
    retryStrategy: (attempt) => Math.min(50 * attempt, 500),
  });
  client.on('error', (error) => console.error(`redis: ${error.message}`));
  return client;
}

// Makes a call, and returns the status and the headers to answer an HTTP request with.
async function throttle(client, key, maxBurst, count, period, quantity = 1) {
  let answer;
  try {
    answer = await client.call('CL.THROTTLE', key, maxBurst, count, period, quantity);
  } catch (error) {
    console.error(`no limits, failing ${FAIL}: ${error.message}`);
    return FAIL === 'open' ? [200, {}] : [503, { 'Retry-After': 1 }];
  }
  const [limited, limit, remaining, retryAfter, resetAfter] = answer;
  const headers = {
    'X-RateLimit-Limit': limit,
    'X-RateLimit-Remaining': remaining,
    'X-RateLimit-Reset': resetAfter,
  };
  // -1 where the call was allowed, and where it asks for more than the limit and never will be.
  if (retryAfter >= 0) headers['Retry-After'] = retryAfter;
  return [limited ? 429 : 200, headers];
}

async function main() {
  const client = connect();
  await new Promise((resolve) => client.once('ready', resolve));
  // Three at once and one a minute; the last call asks for four.
  for (const quantity of [1, 1, 1, 1, 4]) {
    const [status, headers] = await throttle(client, 'user123', 2, 1, 60, quantity);
    console.log(status, Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join(', '));
  }
  client.disconnect();
}

if (require.main === module) main();
module.exports = { connect, throttle };
