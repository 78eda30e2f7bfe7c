// The application's client: ioredis.

const { Redis } = require('ioredis');

const client = new Redis('redis://localhost:6379', {
  connectTimeout: 1000,
  // Connect again if the server goes silent or becomes a replica.
  socketTimeout: 1000,
  reconnectOnError: (error) => error.message.startsWith('READONLY'),
  // A queued call would take its token too late, and a repeated call would take two.
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
});
client.on('error', console.error);
const sendCommand = (...words) => client.call(...words);

module.exports = { client, sendCommand };
