// CL.THROTTLE by the module where the server has it, and by gcra.lua where it has not.
// To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=1] node module_or_script.js

const { createHash } = require('crypto');
const { readFileSync } = require('fs');
const { createClient } = require('redis');

const SCRIPT = readFileSync(`${__dirname}/gcra.lua`, 'utf8');
const NAME = createHash('sha1').update(SCRIPT).digest('hex');
// The longest time that a call waits for a new connection, and for each reply, in ms.
const TIMEOUT = 1000 * (process.env.REDIS_TIMEOUT || 1);

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
      this.module ??= await this.send('COMMAND', 'INFO', 'CL.THROTTLE').then(([info]) => info !== null);
      if (this.module) return await this.send('CL.THROTTLE', ...call);
    } catch (error) {
      this.module = undefined;
      // A server that has lost the module has taken nothing yet.
      if (!error.message.includes('unknown command')) throw error;
    }
    try {
      return await this.send('EVALSHA', NAME, '1', ...call);
    } catch (error) {
      if (!error.message.startsWith('NOSCRIPT')) throw error;
      return this.send('EVAL', SCRIPT, '1', ...call);
    }
  }

  // Resolves to the reply. node-redis itself keeps a connection that is silent, or leads to a server that a failover
  // has made a replica.
  async send(...words) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no reply in ${TIMEOUT} ms`)), TIMEOUT);
    });
    try {
      return await Promise.race([this.client.sendCommand(words), late]);
    } catch (error) {
      // The first of the calls that fail together connects again.
      if (this.client.isReady && /^READONLY|^no reply/.test(error.message)) {
        this.client.disconnect().catch(() => {});
        this.client.connect().catch(() => {});
      }
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }
}

async function main() {
  const url = process.env.REDIS_URL || 'redis://127.0.0.1:6379';
  // A call that waited here for a connection would take its tokens too late.
  const client = createClient({ url, socket: { connectTimeout: TIMEOUT }, disableOfflineQueue: true });
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
