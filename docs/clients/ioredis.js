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
  // A call without a reply would take twice if it were sent again. Another client connects, ready without an INFO.
  maxRetriesPerRequest: 0,
  retryStrategy: null,
  enableReadyCheck: false,
});
const connect = () => new Connection(open, (client, words) => client.call(...words)).ready();

if (require.main === module) connect().then(demonstrate);
module.exports = { connect };
