// Tests of the store in @fastify/rate-limit.

const assert = require('node:assert/strict');
const { test, before } = require('node:test');
const createFastify = require('fastify');
const rateLimit = require('@fastify/rate-limit');
const { fastifyStore } = require('../fastify.js');
const { LIBRARIES, newPrefix, startServer, statuses, times } = require('./support.js');

let server, sendCommand;

before(async () => {
  server = await startServer();
  ({ sendCommand } = await LIBRARIES['node-redis'](server.url));
});

const newStore = (options) => fastifyStore({ sendCommand, prefix: newPrefix(), timeout: 60_000, ...options });
const byHeader = (request) => request.headers.caller ?? 'caller';

/** Creates an application with the routes that `build` adds. Returns a function that sends a request to it. */
async function site(options, build = (fastify) => fastify.get('/', async () => 'Hi')) {
  const fastify = createFastify();
  const own = { max: 2, timeWindow: '1 day', keyGenerator: byHeader, store: newStore() };
  await fastify.register(rateLimit, { ...own, ...options });
  await build(fastify);
  return async (url = '/', caller = 'caller', method = 'GET') => {
    const response = await fastify.inject({ method, url, headers: { caller } });
    return { status: response.statusCode, headers: response.headers, body: response.body };
  };
}

test('no caller can use the key of another limit, whatever the caller is called', async () => {
  const prefix = newPrefix();
  const send = await site({ store: newStore({ prefix }) }, (fastify) => {
    const route = (url, rateLimit, method = 'GET') =>
      fastify.route({ method, url, config: { rateLimit }, handler: async () => 'Hi' });
    fastify.get('/', async () => 'Hi');
    route('/own', { max: 2 });
    route('/own', { max: 2 }, 'POST');
    route('/user/', { max: 2 });
    route('/user/:id', { max: 2 });
    route('/group', { max: 2, groupId: 'GET /own' });
    for (const [url, groupId] of [['/named', 'GET /own'], ['/handler', 'handler'], ['/unnamed', undefined]]) {
      const preHandler = fastify.rateLimit({ max: 2, groupId });
      fastify.get(url, { preHandler, config: { rateLimit: false } }, async () => 'Hi');
    }
  });
  const callers = [
    ['/own', 'x'], ['/', 'x'], ['/', 'GET /own:x'], ['/', 'route:GET /own:x'], ['/', 'route","GET /own","x'],
    ['/group', 'x'], ['/named', 'x'], ['/unnamed', 'x'], ['/user/', 'id:x'], ['/user/', ':id:x'], ['/user/7', 'x'],
    ['/own', 'x', 'POST'], ['/handler', 'x'],
  ];
  for (const call of callers) {
    assert.deepEqual(await statuses(3, () => send(...call)), [200, 200, 429], `${call}`);
  }
  // The keys must stay the same, so that an update of the package keeps the counts.
  const keys = (await server.call('KEYS', `${prefix}*`)).map((key) => JSON.parse(key.slice(prefix.length)));
  const limits = keys.filter((names) => names.at(-4) === 'x').map((names) => names.slice(0, -4).join()).sort();
  assert.deepEqual(limits, [
    '', 'group,GET /own', 'group,handler', 'handler', 'route,GET /own', 'route,GET /user/:id', 'route,POST /own',
  ]);
});

test('registrations and applications with different prefixes share nothing', async () => {
  const prefix = newPrefix();
  for (const further of ['', 'two:', 'three:']) {
    const send = await site({ store: newStore({ prefix: prefix + further }) });
    assert.deepEqual(await statuses(3, send), [200, 200, 429]);
  }
  const send = await site({ store: newStore({ prefix }) });
  assert.deepEqual(await statuses(1, send), [429]);
});

test('a group has one limit, whatever the order in which its routes and handlers are created', async () => {
  const store = newStore();
  const build = (names) => (fastify) => names.forEach((name) => {
    const preHandler = fastify.rateLimit({ max: 1, groupId: name });
    fastify.get(`/${name}`, { preHandler, config: { rateLimit: false } }, async () => 'Hi');
  });
  const first = await site({ store }, build(['a', 'b']));
  assert.deepEqual(await statuses(2, () => first('/a')), [200, 429]);
  const second = await site({ store }, build(['b', 'a']));
  assert.deepEqual([(await second('/b')).status, (await second('/a')).status], [200, 429]);
});

test('of two handlers with the same limit, the second needs a groupId', async () => {
  const build = (...options) => site({}, (fastify) => options.forEach((each) => fastify.rateLimit(each)));
  await assert.rejects(build({ max: 3 }, { max: 3 }), /groupId/);
  await assert.rejects(build({ max: 3 }, { max: () => 3 }), /groupId/);
  await assert.rejects(build({ max: () => 3 }, { max: async () => 3 }), /groupId/);
  await build({ max: 3 }, { max: 3, groupId: 'other' }, { max: 4 });
  // If two registrations of the plugin share a store, the second one's handler needs a groupId, too.
  const store = newStore();
  const register = () => site({ store }, (fastify) => fastify.rateLimit({ max: 3 }));
  await register();
  await assert.rejects(register(), /groupId/);
});

test('{ increment: false } takes no token, and reports when none is left', async () => {
  const send = await site({ global: false }, (fastify) => {
    const check = fastify.createRateLimit({ max: 3, timeWindow: '1 day' });
    fastify.get('/peek', (request) => check(request, { increment: false }));
    fastify.get('/take', (request) => check(request));
  });
  const state = async (url) => {
    const { remaining, isExceeded } = JSON.parse((await send(url)).body);
    return [remaining, isExceeded];
  };
  assert.deepEqual([await state('/peek'), await state('/peek')], [[3, false], [3, false]]);
  assert.deepEqual([await state('/take'), await state('/take')], [[2, false], [1, false]]);
  assert.deepEqual([await state('/peek'), await state('/take')], [[1, false], [0, false]]);
  assert.deepEqual([await state('/peek'), await state('/take'), await state('/peek')], times(3, [0, true]));
});

test('zero, fractional, infinite and computed limits behave as they do without the store', async () => {
  const keyGenerator = () => '\ud800'; // A lone surrogate is no outage.
  for (const max of [0, 2.5, Infinity, () => 2.5, async () => 3, () => Infinity]) {
    const [ours, theirs] = await Promise.all([{}, { store: undefined }].map(async (options) =>
      statuses(5, await site({ max, timeWindow: 60_000_000, keyGenerator, ...options }))));
    assert.deepEqual(ours, theirs, `max ${max}`);
  }
});

test('during an outage, the response is 503 with Retry-After, and skipOnError lets requests pass', async () => {
  const store = newStore({ sendCommand: async () => { throw new Error('the password is wrong'); } });
  const { status, headers, body } = await (await site({ store }))();
  assert.deepEqual([status, headers['retry-after'], headers['cache-control']], [503, '1', 'no-store']);
  assert.doesNotMatch(body, /password/);
  assert.deepEqual(await statuses(3, await site({ store, skipOnError: true })), times(3, 200));
});

test('a changed limit starts full', async () => {
  const store = newStore();
  assert.deepEqual(await statuses(3, await site({ store })), [200, 200, 429]);
  assert.deepEqual(await statuses(3, await site({ store, timeWindow: 60_000 })), [200, 200, 429]);
});
