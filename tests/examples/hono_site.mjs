// hono-rate-limiter, behind one proxy.

import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { rateLimiter } from 'hono-rate-limiter';
import { RedisCellStore, Unanswered } from 'redis-cell/express';
import { client } from './node_redis.mjs';

const sendCommand = (...words) => client.sendCommand(words);
const settings = { windowMs: 24 * 60 * 60 * 1000, keyGenerator: (context) => context.req.header('X-Forwarded-For') };
const limited = (prefix) => rateLimiter({ limit: 3, ...settings, store: new RedisCellStore({ sendCommand, prefix }) });

const app = new Hono();
app.post('/login', limited('login:'), (context) => context.text('Welcome'));

const fallback = rateLimiter({
  limit: 6,
  ...settings,
  skipFailedRequests: true,
  requestWasSuccessful: (context) => context.res.status !== 429,
});
// hono-rate-limiter has no passOnStoreError.
const limitedHello = limited('hello:');
const open = (context, next) => limitedHello(context, next).catch((error) => {
  if (error instanceof Unanswered) return next();
  throw error;
});
app.get('/', fallback, open, (context) => context.text('Hello'));

await new Promise((resolve) => client.once('ready', resolve));
serve({ fetch: app.fetch, port: Number(process.env.HTTP_PORT), hostname: '127.0.0.1' });
