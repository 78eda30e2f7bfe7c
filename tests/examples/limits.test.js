// limits.js by itself, run by node's own test runner: test_programs.py starts it, with a server at REDIS_PORT.

const assert = require('assert');
const { spawnSync } = require('child_process');
const test = require('node:test');

const fromExamples = require('module').createRequire(`${process.cwd()}/`);
const { Limit, Share } = fromExamples('./limits.js');
const { connect } = fromExamples(process.env.CLIENT);

const NOBODY = { call: () => Promise.reject(new Error('gone')) };

// Runs a test with a connection.
const onRedis = (name, body) => test(name, async () => {
  const connection = await connect();
  try {
    await body(connection);
  } finally {
    connection.close();
  }
});

// Makes calls one after the other, and returns their statuses.
async function statuses(limit, calls) {
  const all = [];
  for (const [caller, quantity] of calls) all.push((await limit.throttle(caller, quantity))[0]);
  return all;
}

test('a wrong limit is refused where it is made, by an error that names it', () => {
  const quotas = [[], [[-2, 1, 1]], [[-1, 0, 60]], [[9, 0, 60]], [[0.5, 1, 1]], [[9, 10, 0]], [['9', 10, 1]],
    [[9, 10, 1, 1]], [[2 ** 40, 1, 86400]], [[-1, 1, 2 ** 33]], [[NaN, 1, 1]], [[9, Infinity, 1]], [[true, 1, 1]],
    [[9n, 1, 1]], [[]], [null], 3, null, undefined, Array(9).fill([9, 1, 1])].map((wrong) => ['wrong', wrong]);
  const names = ['login:account', '', ':', 5, null, undefined, ['a']].map((name) => [name, [[9, 1, 1]]]);
  const settings = [{ fail: 'open' }, { fail: null }];
  for (const remember of [NaN, -1, Infinity, '10', true, 2.5]) settings.push({ remember });
  for (const words of [...quotas, ...names, ...settings.map((each) => ['wrong', [[9, 1, 1]], each])]) {
    assert.throws(() => new Limit(NOBODY, ...words), { name: 'RangeError', message: /wrong|name/ }, String(words));
  }
});

test('a limit keeps what was checked', async () => {
  const quotas = [[2, 1, 60]];
  const limit = new Limit({ call: (words) => assert.deepStrictEqual(words.slice(2), [2, 1, 60, 1]) }, 'kept', quotas);
  quotas[0][0] = -5;
  quotas.push([NaN, 1, 1]);
  assert.deepStrictEqual(await statuses(limit, Array(4).fill(['alice'])), [200, 200, 200, 429]);
});

test('a quantity is a number of tokens, and a caller has a text of its own', async () => {
  const limit = new Limit(NOBODY, 'any', [[2, 1, 60]]);
  for (const quantity of [-1, 0.5, '1', '', NaN, Infinity, 2 ** 53, true, 1n, null]) {
    await assert.rejects(limit.throttle('alice', quantity), RangeError, String(quantity));
  }
  for (const caller of [undefined, null, {}, [], ['a'], true]) await assert.rejects(limit.throttle(caller), RangeError);
  assert.deepStrictEqual(await statuses(limit, [['alice'], [7], [7n], ['']]), [200, 200, 200, 200]);
});

test('a wrong number of the environment ends the process, and the error names it', () => {
  const wrong = { TIMEOUT: ['nan', '-1', ''], REDIS_PORT: ['65536'], PROXY: ['::1/129'], PROCESSES: ['-1', '2.5', ''] };
  const program = `new (require('${process.cwd()}/limits.js').Limit)({}, 'a', [[2, 1, 60]])`;
  for (const [name, word] of Object.entries(wrong).flatMap(([key, words]) => words.map((each) => [key, each]))) {
    const ended = spawnSync('node', ['-e', program], { env: { ...process.env, [name]: word }, encoding: 'utf8' });
    assert.ok(ended.status === 1 && ended.stderr.includes(`RangeError: ${name} `), `${name}=${word}: ${ended.stderr}`);
  }
});

onRedis('a quantity above the limit is 413 and a closed plan 403, without a wait', async (connection) => {
  for (const asked of [connection, NOBODY]) {
    for (const [maxBurst, quantity, expected] of [[-1, 1, 403], [2, 4, 413]]) {
      const [status, headers] = await new Limit(asked, 'large', [[maxBurst, 1, 60]]).throttle('alice', quantity);
      assert.deepStrictEqual([status, headers['Retry-After']], [expected, undefined]);
    }
  }
});

onRedis('1000 calls wait for a reply at once, and the share decides more', async (connection) => {
  const many = new Limit(connection, 'many', [[4999, 1, 86400]]);
  const results = await Promise.all(Array.from({ length: 1200 }, () => many.throttle('alice')));
  const ended = (as) => results.filter(([, , result]) => result === as).length;
  assert.deepStrictEqual([ended('allowed'), ended('share')], [1000, 200]);
});

onRedis('a refused caller is refused without a call, and 10,000 are remembered', async (connection) => {
  let calls = 0;
  const counted = { call: (words) => { calls += 1; return connection.call(words); } };
  const limit = new Limit(counted, 'remembers', [[0, 1, 86400]], { remember: 3600 });
  await statuses(limit, Array(1001).fill(['alice', 1]));
  assert.strictEqual(calls, 2);
  await limit.throttle('a'.repeat(10000));
  for (const call of limit.refused.keys()) assert.ok(call.length < 100, 'the names of callers take no memory');
  for (let caller = 0; caller < 11000; caller += 1) limit.refuse(caller, 0, Infinity);
  assert.deepStrictEqual([limit.refused.size, limit.refused.has(999), limit.refused.has(1000)], [10000, false, true]);
});

onRedis('a refused caller is remembered for no longer than the limit says', async (connection) => {
  const limit = new Limit(connection, 'ends', [[0, 1, 86400]], { remember: 1 });
  assert.deepStrictEqual(await statuses(limit, [['alice', 1], ['alice', 1]]), [200, 429]);
  await connection.call(['DEL', 'ends:alice']);
  assert.deepStrictEqual(await statuses(limit, [['alice', 1]]), [429]);
  await new Promise((resolve) => setTimeout(resolve, 1100));
  assert.deepStrictEqual(await statuses(limit, [['alice', 1]]), [200]);
});

test('a quantity that a share never has is 503 without Redis', async () => {
  process.env.PROCESSES = 2;
  const half = new Limit(NOBODY, 'half', [[2, 1, 60]]);
  delete process.env.PROCESSES;
  assert.deepStrictEqual(await statuses(half, [['alice', 2], ['alice', 1], ['alice', 1]]), [503, 200, 429]);
});

onRedis('a client that is replaced while it connects keeps no connection', async (connection) => {
  const replaced = await connect();
  for (let client = 0; client < 5; client += 1) {
    replaced.close();
    replaced.connect();
  }
  // The server has accepted all clients before this one.
  await replaced.ready();
  const clients = async () => (await connection.call(['CLIENT', 'LIST'])).match(/^id=/gm).length;
  for (let ask = 0; ask < 2400 && await clients() !== 2; ask += 1) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.strictEqual(await clients(), 2);
  replaced.close();
});

onRedis('a client keeps no listener for each connection that it makes', async (connection) => {
  const warnings = [];
  process.on('warning', (warning) => warnings.push(warning.message));
  for (let attempt = 0; attempt < 12; attempt += 1) {
    const again = new Promise((resolve) => { connection.client.once('ready', resolve); });
    await connection.call(['CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no']).catch(() => {});
    await again;
  }
  assert.deepStrictEqual(warnings, []);
});

// The share against a limiter for each key, in exact integers: 800,000 decisions at random. Where a token takes some
// microseconds, one microsecond too few would show; where it takes a second, the share has no place for all keys.
test('no key gets more than its share', { skip: process.env.CLIENT !== './node_redis.js' }, () => {
  let seed = 2026;
  // Park and Miller's generator.
  const below = (end) => {
    seed = (seed * 48271) % 2147483647;
    return seed % end;
  };
  let [taken, beyond] = [0, 0];
  const few = [[1, [[2, 300007, 1]]], [2, [[9, 150001, 1]]], [3, [[9, 300007, 1], [99, 700001, 3]]]];
  for (const [processes, quotas, keys] of [...few.map((each) => [...each, 30000]), [1, [[2, 1, 1]], 200000]]) {
    const share = new Share(quotas, processes);
    const exact = new Map();
    // Times are in units of which a token takes a whole number: microseconds, each divided by the count.
    const rules = quotas.map(([maxBurst, count, period]) => ({
      unit: BigInt(count),
      step: BigInt(processes * period) * 1000000n,
      tokens: BigInt(Math.max(1, Math.floor((maxBurst + 1) / processes))),
    }));
    let now = 1;
    for (let call = 0; call < 200000; call += 1) {
      now += below(6);
      const key = `key${below(call % 4 && keys < 200000 ? 5 : keys)}`;
      const quantity = 1 + below(2);
      if (share.take(key, quantity, now)) continue;
      taken += 1;
      const moments = exact.get(key) ?? rules.map(() => 0n);
      exact.set(key, rules.map(({ unit, step, tokens }, index) => {
        const at = BigInt(now) * unit;
        const moment = (moments[index] > at ? moments[index] : at) + BigInt(quantity) * step;
        if (moment - tokens * step > at) beyond += 1;
        return moment;
      }));
    }
    const bytes = share.quotas.flatMap(({ cells }) => cells.map(({ byteLength }) => byteLength));
    assert.deepStrictEqual(bytes, quotas.flatMap(() => [2 ** 20, 2 ** 20]));
  }
  assert.ok(taken > 200000 && beyond === 0, `${taken} taken, ${beyond} beyond`);
});
