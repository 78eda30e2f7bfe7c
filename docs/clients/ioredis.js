// Rate limiting with ioredis. To run this file, beside limits.js:
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=share] node ioredis.js

const { Redis } = require('ioredis');
const { Connection, SERVER, demonstrate } = require('./limits.js');

const open = () => new Redis({
  ...SERVER,
  // A boolean of another server stays one, and is no number 0.
  replyMapping: 'resp3',
  // A call that waited here for a connection would take its tokens too late.
  enableOfflineQueue: false,
  // A call without a reply would take twice if it were sent again when the server is back.
  maxRetriesPerRequest: 0,
  // Calls fail until there is a connection again: make it at once, and send no INFO first. Attempts count from 1.
  enableReadyCheck: false,
  retryStrategy: (attempt) => Math.min(50 * (attempt - 1), 500),
});
const connect = () => new Connection(open, (client, words) => client.call(...words)).ready();

if (require.main === module) connect().then(demonstrate);
module.exports = { connect };
