// express-rate-limit, behind one proxy.

import express from 'express';
import { rateLimit } from 'express-rate-limit';
import { RedisCellStore } from 'redis-cell/express';
import { client } from './node_redis.mjs';
import limitLogIn from './page_site.js';

const windowMs = 24 * 60 * 60 * 1000;
const app = express();
app.set('trust proxy', '127.0.0.1');
// Fails closed: if Redis does not answer, requests are refused with 503. limitLogIn is docs/frameworks.md's example.
limitLogIn(client, app, rateLimit, windowMs, (request, response) => response.send('Welcome'));

// Falls back: if Redis does not answer, each process lets twice the limit through.
const fallback = rateLimit({
  limit: 6,
  windowMs,
  // Do not count requests that the next limiter refuses.
  skipFailedRequests: true,
  requestWasSuccessful: (request, response) => response.statusCode !== 429,
});
const sendCommand = (...words) => client.sendCommand(words);
const store = new RedisCellStore({ sendCommand, prefix: 'hello:' });
const open = rateLimit({ limit: 3, windowMs, passOnStoreError: true, store });
app.get('/', fallback, open, (request, response) => response.send('Hello'));

await new Promise((resolve) => client.once('ready', resolve));
app.listen(process.env.HTTP_PORT, '127.0.0.1');
