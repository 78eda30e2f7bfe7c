// The connections of limits.js, by node's own test runner: test_programs.py starts it, with a server at REDIS_PORT.

const assert = require('assert');
const test = require('node:test');
const { setTimeout: sleep } = require('timers/promises');

const { connect } = require(`${process.cwd()}/${process.env.CLIENT}`);

// A connection that stays open would keep node running.
setTimeout(() => process.exit(1), 300_000).unref();

test('a client that is replaced while it connects keeps no connection', async () => {
  const [connection, replaced] = [await connect(), await connect()];
  for (let client = 0; client < 5; client += 1) {
    replaced.close();
    replaced.connect();
  }
  // The server has accepted all clients before this one.
  await replaced.ready();
  const clients = async () => (await connection.call(['CLIENT', 'LIST'])).match(/^id=/gm).length;
  for (let ask = 0; ask < 2400 && await clients() !== 2; ask += 1) await sleep(50);
  const left = await clients();
  for (const each of [connection, replaced]) each.close();
  assert.strictEqual(left, 2);
});
