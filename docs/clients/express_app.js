// Express, and a middleware that limits requests.
// To run this file, beside node_redis.js and after `npm install express ipaddr.js rate-limiter-flexible redis`:
// [REDIS_URL=redis://127.0.0.1:6379] [REDIS_TIMEOUT=0.1] node express_app.js

const { isIP } = require('net');
const express = require('express');
const ipaddr = require('ipaddr.js');
const { RateLimiterMemory } = require('rate-limiter-flexible');
const { answer, ready, throttle } = require('./node_redis.js'); // or './ioredis.js'

// Returns an IPv4 address, or the /64 of one of IPv6: a customer has all of it.
function network(address) {
  if (!isIP(address)) throw new TypeError(`${address} is no address`);
  const ip = ipaddr.process(address);
  return ip.kind() === 'ipv4' ? ip.toString() : `${ipaddr.IPv6.networkAddressFromCIDR(`${ip}/64`)}/64`;
}

// Returns a middleware: each account that `caller` returns has the quota, or else each address. Without an answer from
// Redis, a request passes if `unanswered` returns true. Both may be `async`. Of two limits of a route, its headers are
// those of the last one that was charged.
function limited(name, quota, { caller = () => undefined, unanswered = () => false } = {}) {
  return async (request, response, next) => {
    const { ip } = request; // A caller who has left meanwhile has none.
    try {
      // A browser asks by a preflight whether a page may make its call, and does not tell the page of a refusal.
      if (request.method === 'OPTIONS' && request.get('Access-Control-Request-Method')) return next();
      let who = await caller(request);
      if (who && !['string', 'number'].includes(typeof who)) throw new TypeError('a caller is a text or a number');
      who = who ? `caller:${who}` : network(ip);
      const reply = await throttle(`${name}:${who}`, ...quota);
      const [status, headers] = reply || (await unanswered(who)) !== true ? answer(reply) : [200, {}];
      // Another middleware may have answered meanwhile, as one for timeouts does.
      if (response.headersSent) return undefined;
      response.set(headers);
      if (status === 200) return next();
      return response.status(status).set('Cache-Control', 'no-store').send('Try again later\n');
    } catch (error) {
      return next(error || new Error('a function of this limit was rejected')); // next() alone would pass.
    }
  };
}

const app = express();
// Behind your own proxy, request.ip is the address that it adds to X-Forwarded-For:
// app.set('trust proxy', '192.0.2.1');
// While Redis does not answer, this process passes three requests a day of each caller.
const alone = new RateLimiterMemory({ points: 3, duration: 86400 });
const byThisProcess = (caller) => alone.consume(caller).then(() => true, () => false);
const hello = (request, response) => response.send('Hello\n');
app.get('/', limited('hello', [2, 1, 86400], { unanswered: byThisProcess }), hello);
app.post('/login', limited('login', [2, 1, 86400]), hello);
// Each customer has 10 at once and 10 a second, and 1,000 at once and 1,000 a day.
const customers = new Map([['secret-of-acme', 'acme']]);
const caller = (request) => customers.get(request.get('X-API-Key'));
app.get('/items', limited('items', [9, 10, 1, 1, 999, 1000, 86400], { caller }), hello);

if (require.main === module) ready.then(() => app.listen(8080, '127.0.0.1'));
module.exports = { app, limited };
