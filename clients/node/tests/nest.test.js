// Tests of the storage in @nestjs/throttler.

const assert = require('node:assert/strict');
const { test, before } = require('node:test');
require('reflect-metadata');
const { Catch, Controller, Get, Module } = require('@nestjs/common');
const { APP_FILTER, APP_GUARD, NestFactory } = require('@nestjs/core');
const { ThrottlerGuard, ThrottlerModule } = require('@nestjs/throttler');
const { NestStore, Unanswered } = require('../nest.js');
const { DAY, LIBRARIES, newPrefix, serve, startServer, startServerWithClock, statuses } = require('./support.js');

let server, sendCommand;

before(async () => {
  server = await startServer();
  ({ sendCommand } = await LIBRARIES['node-redis'](server.url));
});

const newStore = (options) => new NestStore({ sendCommand, prefix: newPrefix(), timeout: 60_000, ...options });

/** Starts a site that limits all callers together, with a lone surrogate as the key. */
async function site(throttlers, storage, ...providers) {
  class Site { hello() { return 'Hi'; } }
  Get()(Site.prototype, 'hello', Object.getOwnPropertyDescriptor(Site.prototype, 'hello'));
  Controller()(Site);
  class Application {}
  const imports = [ThrottlerModule.forRoot({ throttlers, storage, generateKey: () => '\ud800' })];
  providers.push({ provide: APP_GUARD, useClass: ThrottlerGuard });
  Module({ imports, controllers: [Site], providers })(Application);
  const app = await NestFactory.create(Application, { logger: false });
  await app.init();
  return serve(app.getHttpAdapter().getInstance());
}

test('throttlers with the same key share nothing, and neither do stores with different prefixes', async () => {
  const prefix = newPrefix();
  const throttlers = [{ name: 'short', ttl: 60_000, limit: 2 }, { name: 'other', ttl: 60_000, limit: 2 }];
  for (const further of ['', 'two:']) {
    const send = await site(throttlers, newStore({ prefix: prefix + further }));
    const { headers } = await send();
    assert.deepEqual(['short', 'other'].map((name) => headers.get(`X-RateLimit-Remaining-${name}`)), ['1', '1']);
    assert.deepEqual(await statuses(2, send), [200, 429]);
  }
});

test('a refused request must wait for its token, not for the block duration', async () => {
  const { clock, url } = await startServerWithClock();
  const { sendCommand } = await LIBRARIES['node-redis'](url);
  const send = await site([{ ttl: 2400, limit: 2, blockDuration: DAY }], newStore({ sendCommand }));
  assert.deepEqual(await statuses(2, send), [200, 200]);
  // The token comes back after 1.2 seconds. Retry-After is rounded up, so that the retry is not too early.
  const response = await send();
  assert.deepEqual([response.status, response.headers.get('Retry-After')], [429, '2']);
  clock.pass(1200);
  assert.deepEqual(await statuses(2, send), [200, 429]);
});

test('limits may be 0, fractional or infinite', async () => {
  for (const [limit, expected] of [[0, [429, 429]], [1.5, [200, 429]], [Infinity, [200, 200]], ['1', [200, 429]]]) {
    assert.deepEqual(await statuses(2, await site([{ ttl: DAY, limit }], newStore())), expected, `${limit}`);
  }
});

test('during an outage, the response is 503, and an exception filter can add Retry-After', async () => {
  const down = () => newStore({ sendCommand: async () => { throw new Error('the password is wrong'); } });
  const response = await (await site([{ ttl: DAY, limit: 2 }], down()))();
  assert.deepEqual([response.status, response.headers.get('Retry-After')], [503, null]);
  assert.doesNotMatch(await response.text(), /password/);
  class Filter {
    catch(error, host) {
      host.switchToHttp().getResponse().status(error.status).set(error.headers).send(error.message);
    }
  }
  Catch(Unanswered)(Filter);
  const filtered = await (await site([{ ttl: DAY, limit: 2 }], down(), { provide: APP_FILTER, useClass: Filter }))();
  assert.deepEqual([filtered.status, filtered.headers.get('Retry-After')], [503, '1']);
});

test('a changed limit starts full', async () => {
  const storage = newStore();
  for (const ttl of [DAY, 60_000]) {
    assert.deepEqual(await statuses(2, await site([{ ttl, limit: 1 }], storage)), [200, 429]);
  }
});
