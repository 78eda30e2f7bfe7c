// Rate limiting with node-redis. As a program: [REDIS_PORT=6379] node node_redis.js

const { createClient } = require('redis');

// Makes a call, and returns the status and the headers to answer an HTTP request with.
async function throttle(client, key, maxBurst, count, period, quantity = 1) {
  // node-redis sends nothing but strings.
  const call = ['CL.THROTTLE', key, maxBurst, count, period, quantity].map(String);
  const [limited, limit, remaining, retryAfter, resetAfter] = await client.sendCommand(call);
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
  const client = createClient({ socket: { port: Number(process.env.REDIS_PORT ?? 6379) } });
  await client.connect();
  // Three at once and one a minute; the last call asks for four.
  for (const quantity of [1, 1, 1, 1, 4]) {
    const [status, headers] = await throttle(client, 'user123', 2, 1, 60, quantity);
    console.log(status, Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join(', '));
  }
  await client.quit();
}

if (require.main === module) main();
module.exports = { throttle };
