// Express, and a middleware that limits requests.
// To run it, beside answer.js and node_redis.js or ioredis.js:
// [HTTP_PORT=8080] [CLIENT=./ioredis.js] node express_app.js

const express = require('express');
const { Counter, register } = require('prom-client');
const { connect, throttle } = require(process.env.CLIENT ?? './node_redis.js');

const CUSTOMERS = new Map([['secret-of-acme', 'acme']]);
const calls = new Counter({ name: 'limit_calls_total', help: 'By limit and result', labelNames: ['limit', 'result'] });

// Allows each caller this many requests of a name. The caller is an address by default; see "Which key".
function limit(client, name, quotas, fail, caller = (request) => request.ip) {
  return async (request, response, next) => {
    const [status, headers, result] = await throttle(client, `${name}:${caller(request)}`, quotas, fail);
    calls.inc({ limit: name, result });
    response.set(headers);
    if (status === 200) next();
    else response.status(status).send('Try again later\n');
  };
}

// An invented key is refused, and makes no limiter.
function authenticate(request, response, next) {
  request.customer = CUSTOMERS.get(request.get('X-API-Key'));
  if (request.customer) next();
  else response.status(401).send('No such key\n');
}

// The server starts once there is a connection: calls without one would not be limited.
connect().then((client) => {
  const app = express();
  const hello = (request, response) => response.send('Hello\n');
  // 10 at once and 10 a second, and 1,000 at once and 1,000 a day.
  const plan = limit(client, 'customer', [9, 10, 1, 999, 1000, 86400], 'open', (request) => request.customer);
  app.get('/', limit(client, 'hello', [2, 1, 60], 'open'), hello);
  app.post('/login', limit(client, 'login', [2, 1, 60], 'closed'), hello);
  app.get('/items', authenticate, plan, hello);
  app.get('/metrics', async (request, response) => response.type('text').send(await register.metrics()));
  app.listen(process.env.HTTP_PORT ?? 8080, '127.0.0.1');
});
