// Answers each request by a call of docs/recipes/module_or_script.js, with what it got and whether the module decided.

const { createServer } = require('http');
const { createClient } = require('redis');
const { Limiter } = require('../../docs/recipes/module_or_script.js');

const client = createClient({ url: process.env.REDIS_URL, disableOfflineQueue: true }).on('error', () => {});
const limiter = new Limiter(client);
client.connect();
createServer(async (request, response) => {
  const answer = await limiter.throttle(...process.argv.slice(2)).catch(() => null);
  response.end(JSON.stringify(answer && [...answer.slice(0, 3), limiter.module === true]));
}).listen(process.env.HTTP_PORT, '127.0.0.1');
