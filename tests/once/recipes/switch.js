// Calls CL.THROTTLE by module_or_script.js with the words of each line of input.

const { createInterface } = require('readline');
const { createClient } = require('redis');
const { Limiter } = require('../../../docs/recipes/module_or_script.js');

const socket = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT) };
const client = createClient({ socket, disableOfflineQueue: true });
client.on('error', () => {});
const limiter = new Limiter(client);
client.connect().then(() => {
  createInterface({ input: process.stdin }).on('line', async (line) => {
    try {
      const answer = await limiter.throttle(...line.split(' '));
      console.log(...answer, limiter.module ? 'module' : 'script');
    } catch (error) {
      console.log(error.message);
    }
  });
});
