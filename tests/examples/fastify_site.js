// @fastify/rate-limit, behind one proxy.

const fastify = require('fastify')({ trustProxy: '127.0.0.1' });
const { FastifyStore } = require('./fastify_store.js');

async function start() {
  await fastify.register(require('@fastify/rate-limit'), { max: 3, timeWindow: '1 day', store: FastifyStore });
  fastify.addContentTypeParser('*', (request, body, done) => done(null));
  fastify.post('/login', async () => 'Welcome');
  fastify.get('/zero', { config: { rateLimit: { max: 0 } } }, async () => 'Never');
  fastify.get('/own', { config: { rateLimit: { max: 3 } } }, async () => 'Hello');
  fastify.get('/mistake', { config: { rateLimit: { max: () => 2.5 } } }, async () => 'Never');
  fastify.get('/handler', { config: { rateLimit: false }, preHandler: fastify.rateLimit({ max: 3 }) }, async () => 'Hello');
  fastify.get('/other', { config: { rateLimit: false }, preHandler: fastify.rateLimit({ max: 100 }) }, async () => 'Hello');
  await fastify.listen({ port: process.env.HTTP_PORT, host: '127.0.0.1' });
}
start();
