// CL.THROTTLE by the module where the server has it, and by gcra.lua where it has not.
// To run this file: [REDIS_PORT=6379] node module_or_script.js

const { createHash } = require('crypto');
const { readFileSync } = require('fs');
const { createClient } = require('redis');

const SCRIPT = readFileSync(`${__dirname}/gcra.lua`, 'utf8');
const NAME = createHash('sha1').update(SCRIPT).digest('hex');

class Limiter {
  constructor(client) {
    this.client = client;
    // Another connection may lead to another server, with or without the module.
    client.on('ready', () => { this.module = undefined; });
  }

  // Calls CL.THROTTLE with these words. Resolves to its integers.
  async throttle(key, ...words) {
    const call = [key, ...words].map(String);
    try {
      this.module ??= await this.client.sendCommand(['COMMAND', 'INFO', 'CL.THROTTLE']).then(([info]) => info !== null);
      if (this.module) return await this.client.sendCommand(['CL.THROTTLE', ...call]);
    } catch (error) {
      this.module = undefined;
      // A server that has lost the module has taken nothing yet.
      if (!error.message.includes('unknown command')) throw error;
    }
    try {
      return await this.client.sendCommand(['EVALSHA', NAME, '1', ...call]);
    } catch (error) {
      if (!error.message.startsWith('NOSCRIPT')) throw error;
      return this.client.sendCommand(['EVAL', SCRIPT, '1', ...call]);
    }
  }
}

async function main() {
  const socket = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT ?? 6379), connectTimeout: 1000 };
  // A call that waited here for a connection would take its tokens too late.
  const client = createClient({ socket, disableOfflineQueue: true });
  // Without a listener, an error of the connection would end the process.
  client.on('error', (error) => console.error(`redis: ${error.message}`));
  const limiter = new Limiter(client);
  await client.connect();
  // The limiter allows 10 at once and 10 a second, and 1,000 at once and 1,000 a day.
  const answer = await limiter.throttle('user123', 9, 10, 1, 1, 999, 1000, 86400);
  console.log(answer, limiter.module ? 'by the module' : 'by the script');
  await client.disconnect();
}

if (require.main === module) main();
module.exports = { Limiter };
