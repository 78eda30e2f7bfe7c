// limits.js by itself, run by node's own test runner: test_programs.py starts it, with a server at REDIS_PORT.

const assert = require('assert');
const { spawnSync } = require('child_process');
const test = require('node:test');

const fromExamples = require('module').createRequire(`${process.cwd()}/`);
const { Limit } = fromExamples('./limits.js');
const { connect } = fromExamples(process.env.CLIENT);

// A connection that stays open would keep node running.
setTimeout(() => process.exit(1), 300_000).unref();

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

// Makes calls of these quantities one after the other, and returns their statuses.
async function statuses(limit, ...quantities) {
  const all = [];
  for (const quantity of quantities) all.push((await limit.throttle('alice', quantity))[0]);
  return all;
}

test('a wrong limit is refused where it is made, by an error that names it', () => {
  const quotas = [[], [[-2, 1, 1]], [[-1, 0, 60]], [[9, 0, 60]], [[0.5, 1, 1]], [[9, 10, 0]], [['9', 10, 1]],
    [[9, 10, 1, 1]], [[2 ** 40, 1, 86400]], [[-1, 1, 2 ** 33]], [[NaN, 1, 1]], [[9, Infinity, 1]], [[true, 1, 1]],
    [[9n, 1, 1]], [[]], [null], 3, null, undefined, Array(9).fill([9, 1, 1])].map((wrong) => ['wrong', wrong]);
  const names = ['login:account', '', ':', 5, null, undefined, ['a']].map((name) => [name, [[9, 1, 1]]]);
  const remembers = [NaN, -1, Infinity, '10', true, 2.5].map((remember) => ({ remember }));
  const settings = [{ fail: 'open' }, { fail: null }, ...remembers].map((each) => ['wrong', [[9, 1, 1]], each]);
  for (const words of [...quotas, ...names, ...settings]) {
    assert.throws(() => new Limit(NOBODY, ...words), { name: 'RangeError', message: /wrong|name/ }, String(words));
  }
});

test('a quantity is a number of tokens, a caller has a text, and a limit keeps what was checked', async () => {
  const [quotas, asked] = [[[2, 1, 60]], []];
  const limit = new Limit({ call: (words) => asked.push(words.slice(2)) }, 'any', quotas);
  quotas[0][0] = -5;
  for (const quantity of [-1, 0.5, '1', '', NaN, Infinity, 2 ** 53, true, 1n, null]) {
    await assert.rejects(limit.throttle('alice', quantity), RangeError, String(quantity));
  }
  const callers = [undefined, null, {}, [], ['a'], true, 'bob\ud800', '\udfff\ud800'];
  for (const caller of callers) await assert.rejects(limit.throttle(caller), /RangeError: any: a caller/);
  for (const caller of [7, 7n, '', '\ud83d\ude00']) assert.strictEqual((await limit.throttle(caller))[0], 200);
  assert.deepStrictEqual(await statuses(limit, 1, 1, 1, 1), [200, 200, 200, 429]);
  assert.deepStrictEqual(asked, Array(8).fill([2, 1, 60, 1]));
});

test('a wrong number of the environment ends the process, and the error names it', () => {
  const wrong = { TIMEOUT: ['nan', '-1', ''], PROXY: ['::1/129'], PROCESSES: ['-1', '2.5', ''],
    REDIS_PORT: ['abc', '', '0', '70000', '-1'] };
  const program = `new (require('${process.cwd()}/limits.js').Limit)({}, 'a', [[2, 1, 60]])`;
  for (const [name, word] of Object.entries(wrong).flatMap(([key, words]) => words.map((each) => [key, each]))) {
    const ended = spawnSync('node', ['-e', program], { env: { ...process.env, [name]: word }, encoding: 'utf8' });
    assert.ok(ended.status === 1 && ended.stderr.includes(`RangeError: ${name} `), `${name}=${word}: ${ended.stderr}`);
  }
});

onRedis('a quantity that is never allowed is 413 or 403, and one that a share never has 503', async (connection) => {
  for (const asked of [connection, NOBODY]) {
    const plan = (maxBurst) => new Limit(asked, 'plan', [[maxBurst, 1, 60]]);
    assert.deepStrictEqual([await statuses(plan(2), 4), await statuses(plan(-1), 1)], [[413], [403]]);
  }
  process.env.PROCESSES = 2;
  const half = new Limit(NOBODY, 'half', [[2, 1, 60]]);
  delete process.env.PROCESSES;
  assert.deepStrictEqual(await statuses(half, 2, 1, 1), [503, 200, 429]);
});

onRedis('a refused caller is refused without a call, and no longer than the limit says', async (connection) => {
  const limit = new Limit(connection, 'remembers', [[0, 1, 86400]], { remember: 1 });
  assert.deepStrictEqual(await statuses(limit, 1, 1), [200, 429]);
  await connection.call(['DEL', 'remembers:alice']);
  assert.deepStrictEqual(await statuses(limit, 1), [429]);
  await new Promise((resolve) => setTimeout(resolve, 1100));
  assert.deepStrictEqual(await statuses(limit, 1), [200]);
});

test('10,000 refused callers are remembered, and their names take no memory', async () => {
  const refusing = { call: async () => [1, 1, 0, 3600000, 3600000] };
  const limit = new Limit(refusing, 'many', [[0, 1, 86400]], { remember: 3600 });
  for (let caller = 0; caller < 11000; caller += 1) await limit.throttle(`${caller}`.padEnd(1000));
  assert.strictEqual(limit.refused.size, 10000);
  for (const call of limit.refused.keys()) assert.ok(call.length < 100);
  refusing.call = () => Promise.reject(new Error('gone'));
  assert.deepStrictEqual([(await limit.throttle('10999'.padEnd(1000)))[0], (await limit.throttle('0'))[0]], [429, 200]);
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
    const again = connection.ready();
    await connection.call(['CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no']).catch(() => {});
    await again;
  }
  assert.deepStrictEqual(warnings, []);
});
