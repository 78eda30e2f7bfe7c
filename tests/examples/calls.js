// The examples of node-redis and ioredis. Reads lines such as "200 192.0.2.7 share": makes that many calls at once by
// this caller, and prints their answers. "closed" calls are refused without Redis.

const { Limit } = require(`${process.cwd()}/limits.js`);
const { connect } = require(`${process.cwd()}/${process.env.CLIENT ?? 'node_redis.js'}`);

connect().then(async (connection) => {
  const limits = Object.fromEntries(
    ['share', 'closed'].map((fail) => [fail, new Limit(connection, fail, [[2, 1, 86400]], { fail })]));
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const [calls, caller, fail] = line.split(' ');
    const answers = await Promise.all(Array.from({ length: calls }, () => limits[fail].throttle(caller)));
    console.log(JSON.stringify(answers));
  }
});
