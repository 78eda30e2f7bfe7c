// @fastify/rate-limit, behind one proxy.

import rateLimit from '@fastify/rate-limit';
import createFastify from 'fastify';
import { fastifyStore } from 'redis-cell/fastify';
import { client } from './node_redis.mjs';

await new Promise((resolve) => client.once('ready', resolve));
const sendCommand = (...words) => client.sendCommand(words);
const store = fastifyStore({ sendCommand, prefix: 'shop:' });
const fastify = createFastify({ trustProxy: '127.0.0.1' });
await fastify.register(rateLimit, { max: 3, timeWindow: '1 day', store });
fastify.post('/login', async () => 'Welcome');
await fastify.listen({ port: process.env.HTTP_PORT, host: '127.0.0.1' });
