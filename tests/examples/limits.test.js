// limits.js by itself, run by node's own test runner: test_programs.py starts it, with a server at REDIS_PORT.

const assert = require('assert');
const test = require('node:test');

const { Limit, Share } = require(`${process.cwd()}/limits.js`);
const { connect } = require(`${process.cwd()}/${process.env.CLIENT ?? 'node_redis.js'}`);

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

test('a wrong quota is refused where the limit is made', () => {
  const wrong = [[], [[-2, 1, 1]], [[-1, 0, 60]], [[9, 0, 60]], [[0.5, 1, 1]], [[9, 10, 0]], [['9', 10, 1]],
    [[9, 10, 1, 1]], [[2 ** 40, 1, 86400]], [[-1, 1, 2 ** 33]]];
  for (const quotas of wrong) assert.throws(() => new Limit(NOBODY, 'wrong', quotas), RangeError, String(quotas));
});

test('a quantity is a number of tokens', async () => {
  const limit = new Limit(NOBODY, 'any', [[2, 1, 60]]);
  for (const quantity of [-1, 0.5, '1', NaN, 2 ** 53]) {
    await assert.rejects(limit.throttle('alice', quantity), RangeError, String(quantity));
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
  for (let caller = 0; caller < 11000; caller += 1) limit.refuse(caller, 0, Infinity);
  assert.deepStrictEqual([limit.refused.size, limit.refused.has(999), limit.refused.has(1000)], [10000, false, true]);
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

// The share against a limiter for each key, in exact integers: 1.2 million decisions at random, of more keys than a row
// has cells. A token takes some microseconds, so that one microsecond too few would show.
test('no key gets more than its share', () => {
  let seed = 2026;
  // Park and Miller's generator.
  const below = (end) => {
    seed = (seed * 48271) % 2147483647;
    return seed % end;
  };
  let [taken, beyond] = [0, 0];
  const cases = [[1, [[2, 300007, 1]]], [2, [[9, 150001, 1]]], [3, [[9, 300007, 1], [99, 700001, 3]]]];
  for (const [processes, quotas] of cases) {
    const share = new Share(quotas, processes);
    const exact = new Map();
    // Times are in units of which a token takes a whole number: microseconds, each divided by the count.
    const rules = quotas.map(([maxBurst, count, period]) => ({
      unit: BigInt(count),
      step: BigInt(processes * period) * 1000000n,
      tokens: BigInt(Math.max(1, Math.floor((maxBurst + 1) / processes))),
    }));
    let now = 1;
    for (let call = 0; call < 400000; call += 1) {
      now += below(6);
      const key = `key${below(call % 4 ? 5 : 30000)}`;
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
    const bytes = share.quotas.map(({ keys, moments }) => keys.byteLength + moments.byteLength);
    assert.deepStrictEqual(bytes, quotas.map(() => 2 ** 21));
  }
  assert.ok(taken > 300000 && beyond === 0, `${taken} taken, ${beyond} beyond`);
});
