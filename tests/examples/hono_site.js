// hono-rate-limiter, behind one proxy.

const { serve } = require('@hono/node-server');
const { Hono } = require('hono');
const { rateLimiter } = require('hono-rate-limiter');
const { RedisCellStore, Unanswered } = require('redis-cell/express');
const { client, sendCommand } = require('./client.js');

const app = new Hono();
const windowMs = 24 * 60 * 60 * 1000;
const keyGenerator = (context) => context.req.header('X-Forwarded-For');
const limited = (prefix, options) =>
  rateLimiter({ limit: 3, windowMs, keyGenerator, ...options, store: new RedisCellStore({ sendCommand, prefix }) });

app.post('/login', limited('login:'), (context) => context.text('Welcome'));
const fallback = rateLimiter({
  limit: 6,
  windowMs,
  keyGenerator,
  skipFailedRequests: true,
  requestWasSuccessful: (context) => context.res.status !== 429,
});
// hono-rate-limiter has no passOnStoreError.
const open = (context, next) => limitedHello(context, next).catch((error) => {
  if (error instanceof Unanswered) return next();
  throw error;
});
const limitedHello = limited('hello:');
app.get('/', fallback, open, (context) => context.text('Hello'));
app.get('/zero', limited('zero:', { limit: 0, keyGenerator: () => '\ud800' }));
client.once('ready', () => serve({ fetch: app.fetch, port: Number(process.env.HTTP_PORT), hostname: '127.0.0.1' }));
