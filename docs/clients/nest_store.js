// A storage for @nestjs/throttler: `storage: new NestStore()`. Needs rate_limit_store.js and node_redis.js.

const { throttle } = require('./node_redis.js'); // or './ioredis.js'
const { quota, unanswered, wait } = require('./rate_limit_store.js');

class NestStore {
  /** @param {string} key @param {number} ttl @param {number} limit @param {number} block @param {string} name */
  async increment(key, ttl, limit, block, name) {
    const reply = await throttle(`${name}:${key}`, ...quota(limit, ttl));
    if (!reply) throw unanswered();
    const seconds = wait(reply) / 1000;
    const totalHits = reply[0] ? limit + 1 : limit - reply[2];
    return { totalHits, timeToExpire: seconds, isBlocked: reply[0] === 1, timeToBlockExpire: seconds };
  }
}

module.exports = { NestStore };
