// Tests of the store with each Redis library: with a single server, a cluster, a Sentinel, and a silent server.

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const { test } = require('node:test');
const { setImmediate: turn, setTimeout: sleep } = require('node:timers/promises');
const { RedisCellStore, Unanswered } = require('../express.js');
const { DAY, LIBRARIES, atTheEnd, folder, freePort, newPrefix, startServer, times, waitFor } = require('./support.js');

function newStore(options) {
  const store = new RedisCellStore({ prefix: newPrefix(), timeout: DAY, ...options });
  store.init({ limit: 2, windowMs: DAY });
  return store;
}

/** Makes this many concurrent calls. Returns the count in each reply, or 503 for a call that Redis did not decide. */
const counts = (store, times, key = 'key') => Promise.all(Array.from({ length: times }, () =>
  store.increment(key).then(({ totalHits }) => totalHits, (error) => error.status)));

/** Blocks the event loop for 1.2 seconds. */
const stall = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1200);

for (const [library, open] of Object.entries(LIBRARIES)) {
  test(`${library}: a store counts, looks and resets`, async () => {
    const { url } = await startServer();
    const { sendCommand } = await open(url);
    const store = newStore({ sendCommand });
    assert.deepEqual(await counts(store, 3), [1, 2, 3]);
    assert.equal((await store.get('key')).totalHits, 2);
    await store.resetKey('key');
    assert.equal(await store.get('key'), undefined);
  });

  test(`${library}: an error reply and a lost connection are an outage`, async () => {
    const server = await startServer();
    const { sendCommand } = await open(server.url);
    const store = newStore({ sendCommand });
    await server.call('ACL', 'SETUSER', 'default', '-cl.pthrottle');
    await assert.rejects(store.increment('key'), (error) => error instanceof Unanswered && /NOPERM/.test(error.cause));
    await server.call('ACL', 'SETUSER', 'default', '+cl.pthrottle');
    assert.deepEqual(await counts(store, 1), [1]);
    server.process.kill('SIGKILL');
    assert.deepEqual(await counts(store, 2), [503, 503]);
  });

  test(`${library}: a silent server is an outage, and no call is retried`, async () => {
    const server = await startServer();
    const { sendCommand } = await open(server.url);
    const store = newStore({ sendCommand, timeout: undefined });
    server.process.kill('SIGSTOP');
    assert.deepEqual(await counts(store, 19), times(19, 503));
    await assert.rejects(store.increment('key'), (error) => error.cause.message === 'no reply within 100 ms');
    server.process.kill('SIGCONT');
    const calls = async () => /cmdstat_cl.pthrottle:calls=(\d+)/.exec(await server.call('INFO', 'commandstats'))?.[1];
    await waitFor('the server has read all calls', async () => await calls() === '20');
    // The client does not take the late replies for replies to the next calls.
    assert.deepEqual(await counts(newStore({ sendCommand }), 3), [1, 2, 3]);
    assert.equal(await calls(), '23');
  });

  test(`${library}: a stalled event loop makes no call fail`, async () => {
    const server = await startServer();
    const { sendCommand } = await open(server.url);
    const store = newStore({ sendCommand, timeout: 1000 });
    await counts(store, 3);
    // Stall the event loop between the calls and their replies. Some calls may not be sent until the stall ends.
    let called = 0;
    const stalling = (...words) => {
      const reply = sendCommand(...words);
      called += 1;
      if (called === 100) stall();
      return reply;
    };
    const found = await counts(newStore({ sendCommand: stalling, timeout: 1000 }), 100);
    assert.deepEqual(found, [1, 2, ...times(98, 3)]);
    // Let the replies arrive during a stall that is longer than the rest of the timeout.
    server.process.kill('SIGSTOP');
    const late = counts(store, 100);
    await sleep(700);
    await turn(); // After this, the loop runs timers before it reads replies.
    server.process.kill('SIGCONT');
    stall();
    assert.deepEqual(await late, times(100, 3));
  });

  test(`${library}: no timer outlives a reply that is read when half the timeout has passed`, async (context) => {
    const server = await startServer();
    const { sendCommand } = await open(server.url);
    const store = newStore({ sendCommand, timeout: 2000 });
    const { mock } = context.mock.method(globalThis, 'setTimeout');
    server.process.kill('SIGSTOP');
    const reply = counts(store, 1);
    await sleep(100);
    await turn(); // After this, the loop runs timers before it reads the reply.
    server.process.kill('SIGCONT');
    stall();
    assert.deepEqual(await reply, [1]);
    await turn();
    const [first, ...further] = mock.calls.filter((call) => call.arguments[1] === 1000);
    assert.ok(first && !further.some(({ result }) => result.hasRef()), 'a timer keeps the process alive');
  });
}

test('a reply of the wrong shape is an outage', async () => {
  for (const reply of [undefined, null, 'OK', 1, [0, 1], ['a', 'b', 'c', 'd', 'e'], [0, 1, 2, -1, 0.5]]) {
    await assert.rejects(newStore({ sendCommand: async () => reply }).increment('key'), Unanswered, `${reply}`);
  }
  const text = newStore({ sendCommand: async () => ['0', '2', '1', '-1', '5'] });
  assert.equal((await text.increment('key')).totalHits, 1);
});

/** Starts a cluster of three nodes. Returns the nodes when the cluster is up. */
async function startCluster() {
  const nodes = [];
  for (const slots of [[0, 5460], [5461, 10922], [10923, 16383]]) {
    const node = await startServer({}, '--cluster-enabled', 'yes', '--cluster-port', await freePort());
    await node.call('CLUSTER', 'ADDSLOTSRANGE', ...slots);
    if (nodes.length) {
      const bus = await nodes[0].call('CONFIG', 'GET', 'cluster-port');
      await node.call('CLUSTER', 'MEET', '127.0.0.1', nodes[0].port, bus['cluster-port'] ?? bus[1]);
    }
    nodes.push(node);
  }
  const isUp = async (node) => /cluster_state:ok/.test(await node.call('CLUSTER', 'INFO'))
    && /cluster_known_nodes:3/.test(await node.call('CLUSTER', 'INFO'));
  await waitFor('the cluster is up', async () => (await Promise.all(nodes.map(isUp))).every(Boolean));
  return nodes;
}

const CLUSTERS = {
  'node-redis': async (nodes) => {
    const cluster = require('redis').createCluster({ rootNodes: nodes.map(({ url }) => ({ url })) });
    cluster.on('error', () => {});
    await cluster.connect();
    atTheEnd(() => cluster.destroy());
    return ({ key, isReadOnly, command }) => cluster.sendCommand(key, isReadOnly, command);
  },
  ioredis: (nodes) => likeIoredis(require('ioredis').Cluster, nodes, { enableAutoPipelining: true }),
  // Leave enableAutoPipelining off, because it makes iovalkey 0.4.0 mistake EVAL's script for the key.
  iovalkey: (nodes) => likeIoredis(require('iovalkey').Cluster, nodes, {}),
};

async function likeIoredis(Cluster, nodes, options) {
  const addresses = nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
  const cluster = new Cluster(addresses, { ...options, keyPrefix: 'shop:' });
  cluster.on('error', () => {});
  atTheEnd(() => cluster.disconnect());
  await waitFor('the client is ready', () => cluster.status === 'ready');
  const script = 'return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))';
  return ({ key, command: [name, , ...words] }) => cluster.eval(script, 1, key, name, ...words);
}

test('clusters', async (context) => {
  const nodes = await startCluster();
  for (const [library, open] of Object.entries(CLUSTERS)) {
    await context.test(`${library}: each call goes to the node that has the key`, async () => {
      const [send, sent] = [await open(nodes), new Set()];
      const sendCommandCluster = (call) => {
        sent.add(`${call.command[0]} ${call.isReadOnly}`);
        return send(call);
      };
      const store = newStore({ sendCommandCluster });
      await Promise.all(nodes.map((node) => node.call('CONFIG', 'RESETSTAT')));
      const keys = Array.from({ length: 60 }, (_, number) => `caller ${number}`);
      const found = await Promise.all(keys.map((key) => counts(store, 3, key)));
      assert.deepEqual(found, times(60, [1, 2, 3]));
      assert.equal((await store.get(keys[0])).totalHits, 2);
      await store.resetKey(keys[0]);
      assert.equal(await store.get(keys[0]), undefined);
      // A client may send a read-only command to a replica, which cannot take tokens.
      assert.deepEqual([...sent], ['CL.PTHROTTLE false', 'CL.PLOOK true']);
      for (const node of nodes) {
        assert.doesNotMatch(await node.call('INFO', 'errorstats'), /MOVED/);
        assert.notEqual(await node.call('DBSIZE'), 0);
      }
    });
  }
});

/** Starts a primary, a replica and a Sentinel. Returns the Sentinel's port and the two servers. */
async function startSentinel() {
  const [primary, replica] = [await startServer(), await startServer()];
  await replica.call('REPLICAOF', '127.0.0.1', primary.port);
  const [port, own] = [await freePort(), folder()];
  const monitor = `sentinel monitor shop 127.0.0.1 ${primary.port} 1\nsentinel down-after-milliseconds shop 500\n`;
  fs.writeFileSync(`${own}/sentinel.conf`, `port ${port}\nbind 127.0.0.1\n${monitor}`);
  const program = process.env.SERVER ?? 'redis-server';
  const env = { ...process.env, LC_ALL: 'C' };
  const child = spawn(program, [`${own}/sentinel.conf`, '--sentinel'], { stdio: 'ignore', env });
  atTheEnd(() => child.kill('SIGKILL'));
  const client = new (require('ioredis').Redis)({ port });
  client.on('error', () => {});
  atTheEnd(() => client.disconnect());
  const knows = async () => (await client.call('SENTINEL', 'replicas', 'shop')).length === 1;
  await waitFor('the Sentinel knows the replica', knows);
  return { port, primary, replica };
}

const SENTINELS = {
  'node-redis': async (port) => {
    const sentinelRootNodes = [{ host: '127.0.0.1', port }];
    const sentinel = require('redis').createSentinel({ name: 'shop', sentinelRootNodes });
    sentinel.on('error', () => {});
    await sentinel.connect();
    atTheEnd(() => sentinel.destroy());
    return (...words) => sentinel.sendCommand(false, words);
  },
  ioredis: async (port) => {
    const client = new (require('ioredis').Redis)({ sentinels: [{ host: '127.0.0.1', port }], name: 'shop' });
    client.on('error', () => {});
    atTheEnd(() => client.disconnect());
    return (...words) => client.call(...words);
  },
};

for (const [library, open] of Object.entries(SENTINELS)) {
  test(`${library}: a Sentinel client switches to the new primary`, async () => {
    const { port, primary, replica } = await startSentinel();
    const store = newStore({ sendCommand: await open(port) });
    assert.deepEqual(await counts(store, 3), [1, 2, 3]);
    await primary.call('WAIT', 1, 0);
    primary.process.kill('SIGKILL');
    await waitFor('the replica is the primary', async () => (await replica.call('ROLE'))[0] === 'master');
    const impatient = newStore({ sendCommand: await open(port), timeout: 1000 });
    await waitFor('Redis decides again', async () => (await impatient.increment('other')).totalHits);
    // The new primary has the limiter's state, so the count of the next call is 3 again.
    await waitFor('the client has found the new primary', async () => (await store.increment('key')).totalHits === 3);
  });
}
