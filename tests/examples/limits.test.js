// The connections of limits.js, run by node's own test runner: test_programs.py starts it, with a server at REDIS_PORT.

const assert = require('assert');
const test = require('node:test');

const { connect } = require('module').createRequire(`${process.cwd()}/`)(process.env.CLIENT);

// A connection that stays open would keep node running.
setTimeout(() => process.exit(1), 300_000).unref();

// Connects until the test is over.
async function connected(context) {
  const connection = await connect();
  context.after(() => connection.close());
  return connection;
}

test('a client that is replaced while it connects keeps no connection', async (context) => {
  const [connection, replaced] = [await connected(context), await connected(context)];
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
});
