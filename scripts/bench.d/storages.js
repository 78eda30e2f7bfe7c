// The counterpart of storages.py for stores of express-rate-limit and @fastify/rate-limit.

const assert = require('node:assert');
const readline = require('node:readline');
const Redis = require('ioredis');

const [name, port] = process.argv.slice(2);
const redis = new Redis({ port });
const sendCommand = (...words) => redis.call(...words);
const day = 24 * 60 * 60 * 1000;

/** Returns a function that makes a request to a store of express-rate-limit. */
function express(store) {
  store.init({ limit: 1000, windowMs: day });
  return (key) => store.increment(key).then(({ totalHits }) => assert(totalHits <= 1000));
}

/** Returns a function that sends a request to an application that uses @fastify/rate-limit. */
async function fastify(options) {
  const application = require('fastify')();
  const keyGenerator = (request) => request.headers.caller;
  await application.register(require('@fastify/rate-limit'), { max: 1000, timeWindow: day, keyGenerator, ...options });
  application.get('/', async () => '');
  return async (caller) => assert.equal((await application.inject({ url: '/', headers: { caller } })).statusCode, 200);
}

const storages = {
  'rate-limit-redis': () => express(new (require('rate-limit-redis').RedisStore)({ sendCommand })),
  '@fastify/rate-limit': () => fastify({ redis }),
  'redis-cell/express': () => express(new (require('redis-cell/express').RedisCellStore)(
    { sendCommand, prefix: 'rl:', timeout: 600000 })),
};

async function main() {
  const hit = await storages[name]();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [callers, times] = line.split(' ').map(Number);
    for (let time = 0; time < times; time++) {
      for (let caller = 0; caller < callers; caller++) {
        const [network, host] = [Math.floor(caller / 100), caller % 100].map((number) => `${100 + number}`);
        await hit(`192.168.${network}.${host}`);
      }
    }
    console.log('done');
  }
  process.exit();
}
main();
