// Express, and a middleware that limits requests.
// To run this file, beside limits.js and node_redis.js or ioredis.js:
// [HTTP_PORT=8080] [CLIENT=./ioredis.js] [PROCESSES=1] [PROXY=192.0.2.1] node express_app.js

const express = require('express');
const { Counter, register } = require('prom-client');
const { HEADERS, Limit, limitedAddress } = require('./limits.js');
const { connect } = require(process.env.CLIENT ?? './node_redis.js');

const calls = new Counter({ name: 'limit_calls_total', help: 'By limit and result', labelNames: ['limit', 'result'] });

// The address of your own proxy, if there is one, is PROXY: a caller's address is then the one that it adds.
const addressOf = (request) => limitedAddress(request.socket.remoteAddress, request.get('X-Forwarded-For'));

// Returns a middleware. `caller` returns what the key names after the limit, by default an address.
function limited(limit, caller = addressOf) {
  // Each count begins at 0: Prometheus would not see a count that begins with the failures of a first outage.
  for (const result of ['allowed', 'limited', 'share', 'closed']) calls.inc({ limit: limit.name, result }, 0);
  return async (request, response, next) => {
    // A browser asks by a preflight whether a page may make its call, and does not tell the page of a refusal.
    if (request.method === 'OPTIONS' && request.get('Access-Control-Request-Method')) return next();
    const [status, headers, result] = await limit.throttle(caller(request));
    calls.inc({ limit: limit.name, result });
    show(response, status, headers);
    return status === 200 ? next() : response.status(status).send('Try again later\n');
  };
}

// Sends all headers of one limit, where a request has several: the one that refuses, or has fewer tokens left.
function show(response, status, headers) {
  const [before, now] = [response.get('X-RateLimit-Remaining'), headers['X-RateLimit-Remaining']];
  if (status === 200 && (now === undefined || Number(before) <= now)) return;
  for (const name of HEADERS) response.removeHeader(name);
  response.set(headers);
}

connect().then((connection) => {
  const app = express();
  const hello = (request, response) => response.send('Hello\n');
  // Only these routes have a limit. This one: 10 at once and 10 a second, and 1,000 at once and 1,000 a day.
  const items = new Limit(connection, 'items', [[9, 10, 1], [999, 1000, 86400]], { remember: 10 });
  app.get('/items', limited(items), hello);
  app.get('/', limited(new Limit(connection, 'hello', [[2, 1, 86400]])), hello);
  app.post('/login', limited(new Limit(connection, 'login', [[2, 1, 86400]], { fail: 'closed' })), hello);
  app.get('/metrics', async (request, response) => response.type('text').send(await register.metrics()));
  app.listen(process.env.HTTP_PORT ?? 8080, '127.0.0.1');
});
