// express-rate-limit, behind one proxy.

const app = require('express')();
const { MemoryStore, rateLimit } = require('express-rate-limit');
const { RedisCellStore } = require('./rate_limit_store.js');

const windowMs = 24 * 60 * 60 * 1000;
// Fails closed: while Redis does not answer, requests are refused with 503.
app.post('/login', rateLimit({ limit: 3, windowMs, store: new RedisCellStore('login') }),
  (request, response) => response.send('Welcome'));
// Falls back: while Redis does not answer, each process counts in its own memory.
const fallback = new MemoryStore();
app.get('/', rateLimit({ limit: 3, windowMs, store: new RedisCellStore('hello', { fallback }) }),
  (request, response) => response.send('Hello'));

app.set('trust proxy', '127.0.0.1');
const respond = (request, response) => response.status(Number(request.query.status ?? 200)).send('Done');
const limited = (name, options, settings) => {
  const limiter = rateLimit({ limit: 3, windowMs, ...options, store: new RedisCellStore(name, settings) });
  app.get(`/${name}`, limiter, respond);
  app.delete(`/${name}`, (request, response) => limiter.resetKey(request.ip).then(() => response.send('Reset')));
};
limited('zero', { limit: 0, keyGenerator: () => '\ud800' });
limited('failures', { skipSuccessfulRequests: true }, { fallback: new MemoryStore() });
limited('successes', { skipFailedRequests: true });
limited('quotas', { limit: 2 }, { quotas: [1, 10, 1, 1, 2, 3, 86400] });
app.listen(process.env.HTTP_PORT, '127.0.0.1');
