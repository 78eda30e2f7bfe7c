// @fastify/rate-limit, behind one proxy.

const fastify = require('fastify')({ trustProxy: '127.0.0.1' });
const { fastifyStore } = require('redis-cell/fastify');
const { client, sendCommand } = require('./client.js');

async function start() {
  await fastify.register(require('@fastify/rate-limit'), {
    max: 3,
    timeWindow: '1 day',
    store: fastifyStore({ sendCommand, prefix: 'shop:' }),
  });
  fastify.post('/login', async () => 'Welcome');
  const rateLimit = { max: 0, keyGenerator: () => '\ud800' };
  fastify.get('/zero', { config: { rateLimit } }, async () => 'Never');
  await fastify.listen({ port: process.env.HTTP_PORT, host: '127.0.0.1' });
}
client.once('ready', start);
