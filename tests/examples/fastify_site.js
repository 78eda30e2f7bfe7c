// @fastify/rate-limit, behind one proxy.

const fastify = require('fastify')({ trustProxy: '127.0.0.1' });
const { FastifyStore } = require('./fastify_store.js');

async function start() {
  await fastify.register(require('@fastify/rate-limit'), { max: 3, timeWindow: '1 day', store: FastifyStore });
  fastify.post('/login', async () => 'Welcome');
  const hello = async () => 'Hi';
  const route = (path, rateLimit, preHandler) => fastify.get(path, { config: { rateLimit }, preHandler }, hello);
  route('/zero', { max: 0, keyGenerator: () => '\ud800' });
  route('/own', { max: 3 });
  route('/handler', false, fastify.rateLimit({ max: 3 }));
  route('/other', false, fastify.rateLimit({ max: 100 }));
  await fastify.listen({ port: process.env.HTTP_PORT, host: '127.0.0.1' });
}
start();
