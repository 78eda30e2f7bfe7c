// Makes limits of wrong numbers, calls of wrong quantities, 1,200 calls at once, 1,001 calls of a limit that remembers,
// and clients that are replaced while they connect.

const { Limit } = require(`${process.cwd()}/limits.js`);
const { connect } = require(`${process.cwd()}/${process.env.CLIENT ?? 'node_redis.js'}`);

const fails = (work) => {
  try {
    work();
    return 0;
  } catch (error) {
    return Number(error instanceof RangeError);
  }
};

connect().then(async (connection) => {
  const wrong = [[], [[-2, 1, 1]], [[-1, 0, 60]], [[9, 0, 60]], [[0.5, 1, 1]], [[9, 10, 0]], [['9', 10, 1]],
    [[9, 10, 1, 1]], [[2 ** 40, 1, 86400]], [[-1, 1, 2 ** 33]]];
  const limits = wrong.map((quotas) => fails(() => new Limit(connection, 'wrong', quotas)));
  const any = new Limit(connection, 'any', [[2, 1, 60]]);
  const quantities = [-1, 0.5, '1', NaN, 2 ** 53].map((quantity) => (
    any.throttle('alice', quantity).then(() => 0, (error) => Number(error instanceof RangeError))));
  const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);
  console.log(sum(limits), 'limits and', sum(await Promise.all(quantities)), 'quantities are refused');
  for (const [quotas, quantity] of [[[[-1, 1, 60]], 1], [[[2, 1, 60]], 4]]) {
    const [status, headers] = await new Limit(connection, 'large', quotas).throttle('alice', quantity);
    delete headers['X-RateLimit-Limit'];
    delete headers['X-RateLimit-Remaining'];
    delete headers['X-RateLimit-Reset'];
    console.log(status, headers);
  }
  const many = new Limit(connection, 'many', [[4999, 1, 86400]]);
  const results = await Promise.all(Array.from({ length: 1200 }, () => many.throttle('alice')));
  const waited = results.filter(([, , result]) => result === 'allowed').length;
  console.log(`${waited} calls wait for a reply at once, ${results.length - waited} are decided by the share`);
  let calls = 0;
  const counted = { call: (words) => { calls += 1; return connection.call(words); } };
  const limit = new Limit(counted, 'remembers', [[0, 1, 86400]], { remember: 3600 });
  await limit.throttle('alice');
  calls = 0;
  for (let call = 0; call < 1000; call += 1) await limit.throttle('alice');
  console.log(calls, 'call of Redis for 1000 refusals');
  for (let caller = 0; caller < 11000; caller += 1) limit.refuse(caller, 0, Infinity);
  console.log(limit.refused.size === 10000 && !limit.refused.has(999) ? 'bounded' : limit.refused.size);
  process.env.PROCESSES = 2;
  const half = new Limit({ call: () => Promise.reject(new Error('gone')) }, 'half', [[2, 1, 60]]);
  console.log(await half.throttle('alice', 2), await half.throttle('alice', 1));
  const replaced = await connect();
  for (let client = 0; client < 5; client += 1) {
    replaced.close();
    replaced.connect();
  }
  // The server has accepted all clients before this one.
  await replaced.ready();
  const clients = async () => (await connection.call(['CLIENT', 'LIST'])).match(/^id=/gm).length;
  let count = await clients();
  for (let attempt = 0; count !== 2 && attempt < 100; attempt += 1) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    count = await clients();
  }
  console.log(count, 'clients');
  replaced.close();
  connection.close();
});
