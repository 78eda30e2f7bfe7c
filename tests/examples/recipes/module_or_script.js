// Answers each request by a call of docs/recipes/module_or_script.js: the tokens left, and whether the module decided.

const { createServer } = require('http');
const { createClient } = require('redis');
const { Limiter } = require('../../../docs/recipes/module_or_script.js');

const client = createClient({ url: process.env.REDIS_URL, disableOfflineQueue: true }).on('error', () => {});
const limiter = new Limiter(client);
client.connect();
createServer(async (request, response) => {
  const answer = await limiter.throttle('user123', 29, 1, 86400).catch(() => null);
  response.end(JSON.stringify(answer && [answer[2], limiter.module === true]));
}).listen(process.env.HTTP_PORT, '127.0.0.1');
