// The examples of node-redis and ioredis. Reads lines such as "200 192.0.2.7 share": makes that many calls at once by
// this caller, and prints their answers. "closed" calls are refused without Redis. Usage: node calls.js ./node_redis.js

const fromExamples = require('module').createRequire(`${process.cwd()}/`);
const { Limit } = fromExamples('./limits.js');

fromExamples(process.argv[2]).connect().then(async (connection) => {
  const limits = Object.fromEntries(
    ['share', 'closed'].map((fail) => [fail, new Limit(connection, fail, [[2, 1, 86400]], { fail })]));
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const [calls, caller, fail] = line.split(' ');
    console.log(JSON.stringify(await Promise.all(Array.from({ length: calls }, () => limits[fail].throttle(caller)))));
  }
  connection.close();
});
