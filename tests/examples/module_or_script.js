// Makes a call by docs/recipes/module_or_script.js for each line, and prints its answer and whether the module decided.

const { createClient } = require('redis');
const { Limiter } = require('../../docs/recipes/module_or_script.js');

const socket = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT) };
const client = createClient({ socket, disableOfflineQueue: true }).on('error', () => {});
const limiter = new Limiter(client);
client.connect();
process.stdin.on('data', async () => {
  const answer = await limiter.throttle(...process.argv.slice(2)).catch(() => null);
  console.log(JSON.stringify(answer && [...answer.slice(0, 3), limiter.module]));
});
