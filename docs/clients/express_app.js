// Express, and a middleware that limits requests.
// To run this file, beside answer.js and node_redis.js or ioredis.js:
// [HTTP_PORT=8080] [CLIENT=./ioredis.js] [PROXY=192.0.2.1] node express_app.js

const express = require('express');
const { Counter, register } = require('prom-client');
const { connect, throttle } = require(process.env.CLIENT ?? './node_redis.js');

const CUSTOMERS = new Map([['secret-of-acme', 'acme']]);
const calls = new Counter({ name: 'limit_calls_total', help: 'By limit and result', labelNames: ['limit', 'result'] });

// Returns an IPv4 address, or the 2^64 addresses around one of IPv6: a customer has all of them.
function address(request) {
  const ip = request.ip ?? 'unix';
  // An address of IPv6 can end in one of IPv4, and some proxies add a port.
  const [, ipv4] = /(\d+\.\d+\.\d+\.\d+)(?::\d+)?$/.exec(ip) ?? [];
  if (ipv4 || !ip.includes(':')) return ipv4 ?? ip;
  const [head, tail = []] = ip.split('::').map((words) => words.split(':').filter(Boolean));
  const zeros = Array(Math.max(0, 8 - head.length - tail.length)).fill('0');
  return `${[...head, ...zeros, ...tail].slice(0, 4).join(':')}::/64`;
}

// Returns a middleware that limits each caller by these quotas. The key is the name, and what `caller` returns: by
// default an address. docs/clients.md has other keys, under "Which key".
function limit(connection, name, quotas, fail, caller = address) {
  // Each count begins at 0: Prometheus would not see a count that begins with the failures of a first outage.
  for (const result of ['allowed', 'limited', 'busy', `failed ${fail}`]) calls.inc({ limit: name, result }, 0);
  return async (request, response, next) => {
    const [status, headers, result] = await throttle(connection, `${name}:${caller(request)}`, quotas, fail);
    calls.inc({ limit: name, result });
    response.set(headers);
    if (status === 200) next();
    else response.status(status).send('Try again later\n');
  };
}

// Finds the customer of an API key. An unknown key is refused, and makes no limiter.
function authenticate(request, response, next) {
  request.customer = CUSTOMERS.get(request.get('X-API-Key'));
  if (request.customer) next();
  else response.status(401).send('No such key\n');
}

// Serve once there is a connection to Redis: before that, calls that fail open would not be limited.
connect().then((connection) => {
  const app = express();
  // The address of your own proxy, if there is one: `request.ip` is then the address that it adds.
  app.set('trust proxy', process.env.PROXY ?? false);
  const hello = (request, response) => response.send('Hello\n');
  // 10 at once and 10 a second, and 1,000 at once and 1,000 a day.
  const plan = limit(connection, 'customer', [9, 10, 1, 999, 1000, 86400], 'open', (request) => request.customer);
  app.get('/', limit(connection, 'hello', [2, 1, 60], 'open'), hello);
  app.post('/login', limit(connection, 'login', [2, 1, 60], 'closed'), hello);
  app.get('/items', authenticate, plan, hello);
  app.get('/metrics', async (request, response) => response.type('text').send(await register.metrics()));
  app.listen(process.env.HTTP_PORT ?? 8080, '127.0.0.1');
});
