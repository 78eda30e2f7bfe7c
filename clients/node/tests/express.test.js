// Tests of the store in express-rate-limit, express-slow-down and hono-rate-limiter.

const assert = require('node:assert/strict');
const { test, before } = require('node:test');
const express = require('express');
const { rateLimit } = require('express-rate-limit');
const { RedisCellStore, Unanswered } = require('../express.js');
const {
  DAY, LIBRARIES, newPrefix, serve, startServer, startServerWithClock, statuses, times,
} = require('./support.js');

const windowMs = DAY;
const LIMITERS = ['express-rate-limit-7', 'express-rate-limit-8.2', 'express-rate-limit'];
let server, sendCommand;

before(async () => {
  server = await startServer();
  ({ sendCommand } = await LIBRARIES['node-redis'](server.url));
});

const newStore = (options) => new RedisCellStore({ sendCommand, prefix: newPrefix(), timeout: DAY, ...options });
const silent = { validate: false, logger: { error() {}, warn() {} } };
/** Serves an application with these limiters. Returns a function that sends a request, to which `handle` responds. */
function site(limiters, handle = (request, response) => response.send('Hello')) {
  const app = express();
  // Handle errors here, because Express's default handler would log them.
  app.use(limiters, handle, (error, request, response, next) =>
    response.status(error.status ?? 500).set(error.headers ?? {}).send(error.message));
  return serve(app);
}

test('a refused request exceeds a limit that is a function', async () => {
  const store = newStore({ quotas: async (key) => [{ limit: key === 'gold' ? 3 : 2, windowMs }] });
  const limit = (request) => (request.get('plan') === 'gold' ? 3 : 2);
  const send = await site(rateLimit({ limit, windowMs, keyGenerator: (request) => request.get('plan'), store }));
  for (const [plan, tokens] of [['gold', 3], ['free', 2]]) {
    const found = await statuses(5, () => send('/', { headers: { plan } }));
    assert.deepEqual(found, [...times(tokens, 200), ...times(5 - tokens, 429)]);
  }
});

test('a refused request exceeds a limit that is more than the quotas allow', async () => {
  const store = newStore({ quotas: [{ limit: 1, windowMs }] });
  const send = await site(rateLimit({ limit: 100, windowMs, store }));
  assert.deepEqual(await statuses(3, send), [200, 429, 429]);
});

for (const passOnStoreError of [false, true]) {
  test(`no request passes after a mistake, with passOnStoreError ${passOnStoreError}`, async (context) => {
    const log = context.mock.method(console, 'error', () => {});
    const withoutQuotas = rateLimit({ limit: () => 3, windowMs, passOnStoreError, store: newStore(), ...silent });
    const store = newStore();
    const first = rateLimit({ limit: 3, windowMs, passOnStoreError, store, ...silent });
    const second = rateLimit({ limit: 100, windowMs, store, ...silent });
    const quotas = () => { throw new Error('the plan has no quotas'); };
    const broken = rateLimit({ limit: 3, windowMs, passOnStoreError, store: newStore({ quotas }), ...silent });
    const unlimited = rateLimit({
      limit: Infinity, windowMs, passOnStoreError, store: newStore({ quotas: [{ limit: 2, windowMs }] }), ...silent,
    });
    for (const [limiter, mistake] of [
      [withoutQuotas, /function.*quotas/], [first, /its own store/], [second, /its own store/], [broken, /the plan/],
      // With passOnStoreError, an infinite limit refuses no request, so only the log can report this mistake.
      ...passOnStoreError ? [] : [[unlimited, /first burst/]],
    ]) {
      const send = await site(limiter);
      log.mock.resetCalls();
      const response = await send();
      assert.ok(response.status === (passOnStoreError ? 429 : 500), `${response.status}`);
      assert.match(passOnStoreError ? log.mock.calls[0].arguments[0].message : await response.text(), mistake);
    }
  });
}

test('passOnStoreError lets requests pass while Redis does not decide', async () => {
  const store = newStore({ sendCommand: async () => { throw new Error('gone'); } });
  const send = await site(rateLimit({ limit: 1, windowMs, passOnStoreError: true, store, ...silent }));
  assert.deepEqual(await statuses(3, send), [200, 200, 200]);
});

test('fractional, zero, negative and infinite limits behave as they do without the store', async () => {
  for (const limit of [0, 0.5, 2.5, -1, Infinity, '3']) {
    const [ours, theirs] = await Promise.all([newStore(), undefined].map(async (store) =>
      statuses(5, await site(rateLimit({ limit, windowMs, store, ...silent })))));
    assert.deepEqual(ours, theirs, `limit ${limit}`);
  }
});

test('a request that can never pass is told to retry after a whole window', async () => {
  const quotas = [{ limit: 0, burst: 5, windowMs }];
  for (const store of [newStore(), newStore({ quotas })]) {
    const response = await (await site(rateLimit({ limit: 0, windowMs, store, ...silent })))();
    assert.deepEqual([response.status, response.headers.get('Retry-After')], [429, '86400']);
    assert.equal((await store.get('127.0.0.1')).totalHits, 0);
  }
});

test('windows may be shorter than a millisecond or longer than a century', async () => {
  for (const length of [0.5, Number.MAX_SAFE_INTEGER, Infinity]) {
    const store = newStore();
    store.init({ limit: 1, windowMs: length });
    assert.equal((await store.increment('key')).totalHits, 1, `windowMs ${length}`);
  }
});

test('no combination of prefix and key collides with another, even with lone surrogates', async () => {
  const prefix = newPrefix();
  const keys = [['', 'b'], ['', '\ud800'], ['', '\ud801'], ['', 'a:b'], ['a:', 'b'], ['', 'b",2,3,4'], ['', '["b"']];
  for (const [further, key] of keys) {
    const store = newStore({ prefix: prefix + further });
    store.init({ limit: 1, windowMs });
    assert.equal((await store.increment(key)).totalHits, 1, `${further} ${key}`);
    assert.equal((await store.increment(key)).totalHits, 2, `${further} ${key}`);
  }
});

test('a changed limit starts full, and the old one keeps its count', async () => {
  const prefix = newPrefix();
  const used = async (limit, windowMs) => {
    const store = newStore({ prefix });
    store.init({ limit, windowMs });
    return (await store.increment('key')).totalHits;
  };
  assert.deepEqual([await used(1, DAY), await used(1, DAY)], [1, 2]);
  assert.deepEqual([await used(1, 60_000), await used(5, DAY), await used(1, DAY)], [1, 1, 2]);
});

for (const quotas of [undefined, [{ limit: 4, windowMs }, { limit: 9, windowMs: 7 * windowMs }]]) {
  test(`getKey returns the tokens used, and resetKey gives them back${quotas ? ' to each quota' : ''}`, async () => {
    const limiter = rateLimit({ limit: 4, windowMs, keyGenerator: () => 'key', store: newStore({ quotas }) });
    const send = await site(limiter);
    assert.equal(await limiter.getKey('key'), undefined);
    await statuses(4, send);
    for (const used of [4, 4]) assert.equal((await limiter.getKey('key')).totalHits, used);
    assert.deepEqual(await statuses(1, send), [429]);
    await limiter.resetKey('key');
    assert.equal(await limiter.getKey('key'), undefined);
    assert.deepEqual(await statuses(5, send), [...times(4, 200), 429]);
  });
}

test('half the limit is a hard cap: no window has more than twice as many', async () => {
  const { clock, url } = await startServerWithClock();
  const store = newStore(await LIBRARIES['node-redis'](url).then(({ sendCommand }) => ({ sendCommand })));
  store.init({ limit: 30, windowMs: 60_000 });
  const passed = [];
  for (let second = 0; second < 150; second += 1, clock.pass(1000)) {
    passed[second] = 0;
    for (let call = 0; call < 31; call += 1) passed[second] += (await store.increment('key')).totalHits <= 30;
  }
  const windows = passed.slice(59).map((_, end) => passed.slice(end, end + 60).reduce((sum, number) => sum + number));
  assert.equal(Math.max(...windows), 59);
});

test('express-slow-down slows down after its delayAfter', async () => {
  const { slowDown } = require('express-slow-down');
  const delays = [];
  const delayMs = (used) => { delays.push(used); return 0; };
  const store = newStore({ quotas: [{ burst: 5, limit: 2, windowMs }] });
  const send = await site(slowDown({ windowMs, delayAfter: 2, delayMs, store }));
  assert.deepEqual(await statuses(7, send), times(7, 200));
  // `used` stops at the burst plus one.
  assert.deepEqual(delays, [3, 4, 5, 6, 6]);
});

test('a limit of 0 is not mistaken for express-slow-down', async () => {
  for (const options of [{ validate: { limit: false } }, { requestPropertyName: 'own' }]) {
    const settings = { ...silent, validate: true, limit: 0, windowMs, store: newStore(), ...options };
    assert.deepEqual(await statuses(2, await site(rateLimit(settings))), [429, 429]);
  }
});

test('express-slow-down without quotas is a mistake', async () => {
  const { slowDown } = require('express-slow-down');
  const send = await site(slowDown({ windowMs, delayAfter: 2, store: newStore(), ...silent }));
  const response = await send();
  assert.equal(response.status, 500);
  assert.match(await response.text(), /express-slow-down needs/);
});

/** Returns a handler that responds outside the request's async context, as happens with drivers that batch queries. */
function batching() {
  let waiting = [];
  setInterval(() => waiting.splice(0).forEach((answer) => answer()), 1).unref();
  return (request, response) => waiting.push(() => response.status(Number(request.get('status') ?? 200)).send('Done'));
}

for (const name of LIMITERS) {
  const { rateLimit: limit } = require(name);

  test(`${name}: successful requests are refunded, whatever async context they end in`, async () => {
    const limiter = limit({ limit: 3, windowMs, skipSuccessfulRequests: true, store: newStore() });
    const send = await site(limiter, batching());
    assert.deepEqual(await statuses(6, send), times(6, 200));
    assert.deepEqual(await statuses(4, () => send('/', { headers: { status: 401 } })), [401, 401, 401, 429]);
    assert.deepEqual(await statuses(1, send), [429]);
  });

  test(`${name}: a refused request gets no refund, whatever async context it ends in`, async () => {
    for (const handler of [undefined, batching()]) {
      const send = await site(limit({ limit: 3, windowMs, skipFailedRequests: true, store: newStore(), handler }));
      const found = await statuses(9, () => send('/', { headers: { status: 429 } }));
      assert.deepEqual(found, [...times(3, 200), ...times(6, 429)]);
    }
  });

  test(`${name}: an outage during a request does not change its response or stop the process`, async (context) => {
    const log = context.mock.method(console, 'error', () => {});
    const rejected = context.mock.fn();
    process.on('unhandledRejection', rejected);
    context.after(() => process.off('unhandledRejection', rejected));
    let isGone = false;
    const store = newStore({
      sendCommand: (...words) => (isGone ? Promise.reject(new Error('gone')) : sendCommand(...words)),
    });
    const limiter = limit({ limit: 3, windowMs, skipFailedRequests: true, skipSuccessfulRequests: true, store });
    const send = await site(limiter, (request, response) => { isGone = true; response.send('Done'); });
    assert.deepEqual(await statuses(2, send), [200, 503]);
    assert.equal(rejected.mock.callCount(), 0);
    assert.match(log.mock.calls[0].arguments[0].stack, /Caused by Error: gone/);
  });
}

test('Express, Hono and the log report an outage', async () => {
  const store = newStore({ sendCommand: async () => { throw new Error('the password is wrong'); } });
  store.init({ limit: 3, windowMs });
  const error = await store.increment('key').catch((thrown) => thrown);
  assert.ok(error instanceof Unanswered && error.cause.message === 'the password is wrong');
  assert.match(error.stack, /Try again later\n +at .*the password is wrong/s);
  assert.doesNotMatch(error.message, /password/);
  const response = await (await site((request, response, next) => next(error)))();
  const numbers = ({ status, headers }) => [status, headers.get('Retry-After'), headers.get('Cache-Control')];
  assert.deepEqual(numbers(response), [503, '1', 'no-store']);
  const { Hono } = require('hono');
  const { rateLimiter } = require('hono-rate-limiter');
  const down = newStore({ sendCommand: async () => { throw new Error('gone'); } });
  const app = new Hono().use(rateLimiter({ limit: 3, windowMs, keyGenerator: () => 'key', store: down }));
  assert.deepEqual(numbers(await app.request('/')), [503, '1', 'no-store']);
});

test('hono-rate-limiter refunds failures', async () => {
  const { Hono } = require('hono');
  const { rateLimiter } = require('hono-rate-limiter');
  const options = { limit: 2, windowMs, keyGenerator: () => 'key', skipFailedRequests: true, store: newStore() };
  const app = new Hono().use(rateLimiter(options))
    .get('/', (context) => context.text('Hi', Number(context.req.header('status'))));
  const send = (status) => app.request('/', { headers: { status } });
  assert.deepEqual(await statuses(5, () => send(404)), times(5, 404));
  assert.deepEqual(await statuses(4, () => send(200)), [200, 200, 429, 429]);
});

test('in Hono, a limit of 0 for a lone surrogate is no outage', async () => {
  const { Hono } = require('hono');
  const { rateLimiter } = require('hono-rate-limiter');
  const limiter = rateLimiter({ limit: 0, windowMs, keyGenerator: () => '\ud800', store: newStore() });
  assert.equal((await new Hono().use(limiter).request('/')).status, 429);
});

test('unknown and wrong options are errors', () => {
  const wrong = [
    { resetExpiryOnChange: true }, { prefix: '' }, { prefix: undefined }, { timeout: 0 }, { timeout: '1s' },
    { sendCommand: undefined }, { sendCommandCluster: sendCommand },
  ];
  for (const options of wrong) assert.throws(() => newStore(options), TypeError, JSON.stringify(options));
});
