// A store for @fastify/rate-limit: `store: FastifyStore`. Needs rate_limit_store.js and node_redis.js.

const { throttle } = require('./node_redis.js'); // or './ioredis.js'
const { quota, unanswered, wait } = require('./rate_limit_store.js');

class FastifyStore {
  /** @param {any} options @param {string} prefix */
  constructor(options, prefix = 'fastify:') {
    this.prefix = prefix;
  }

  /** Returns the store of a route that has its own limit. @param {any} options */
  child({ routeInfo: { method, url } = {} }) {
    // A handler that fastify.rateLimit() returns has no route, so the handlers are numbered.
    const name = url ? `${method} ${url}` : `#${FastifyStore.handlers += 1}`;
    return new FastifyStore({}, `${this.prefix}${name}:`);
  }

  /** @param {string} key @param {(...args: any[]) => void} callback @param {number} timeWindow @param {number} max */
  incr(key, callback, timeWindow, max) {
    throttle(this.prefix + key, ...quota(max, timeWindow)).then((reply) => {
      if (!reply) throw unanswered();
      return { current: reply[0] ? max + 1 : max - reply[2], ttl: wait(reply) };
    }).then((result) => callback(null, result), callback);
  }
}
FastifyStore.handlers = 0;

module.exports = { FastifyStore };
