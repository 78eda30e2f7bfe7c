// hono-rate-limiter, behind one proxy.

const { serve } = require('@hono/node-server');
const { Hono } = require('hono');
const { rateLimiter } = require('hono-rate-limiter');
const { RedisCellStore } = require('./rate_limit_store.js');

const app = new Hono();
const windowMs = 24 * 60 * 60 * 1000;
const keyGenerator = (context) => context.req.header('X-Forwarded-For');
app.post('/login', rateLimiter({ limit: 3, windowMs, keyGenerator, store: new RedisCellStore('login') }),
  (context) => context.text('Welcome'));
const fallback = new (require('express-rate-limit').MemoryStore)();
app.get('/', rateLimiter({ limit: 3, windowMs, keyGenerator, store: new RedisCellStore('hello', { fallback }) }),
  (context) => context.text('Hello'));
app.get('/zero',
  rateLimiter({ limit: 0, windowMs, keyGenerator: () => '\ud800', store: new RedisCellStore('zero') }));
serve({ fetch: app.fetch, port: Number(process.env.HTTP_PORT), hostname: '127.0.0.1' });
