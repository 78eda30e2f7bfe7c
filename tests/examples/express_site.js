// express-rate-limit, behind one proxy.

const app = require('express')();
const { rateLimit } = require('express-rate-limit');
const { RedisCellStore } = require('redis-cell/express');
const { client, sendCommand } = require('./client.js');

const windowMs = 24 * 60 * 60 * 1000;
const store = (prefix) => new RedisCellStore({ sendCommand, prefix });

app.set('trust proxy', '127.0.0.1');
// Fails closed: if Redis does not answer, requests are refused with 503. These are the lines of docs/frameworks.md.
require('./page_site.js')(client, app, rateLimit, windowMs, (request, response) => response.send('Welcome'));

// Falls back: if Redis does not answer, each process lets twice the limit through.
const fallback = rateLimit({
  limit: 6,
  windowMs,
  // Do not count what the next limiter refuses.
  skipFailedRequests: true,
  requestWasSuccessful: (request, response) => response.statusCode !== 429,
});
const open = rateLimit({ limit: 3, windowMs, passOnStoreError: true, store: store('hello:') });
app.get('/', fallback, open, (request, response) => response.send('Hello'));

const zero = rateLimit({ limit: 0, windowMs, keyGenerator: () => '\ud800', store: store('zero:') });
app.get('/zero', zero, (request, response) => response.send('Never'));
client.once('ready', () => app.listen(process.env.HTTP_PORT, '127.0.0.1'));
