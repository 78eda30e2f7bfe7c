// Helpers for the tests: real servers, clients from three libraries, and requests.

const { spawn, spawnSync } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { after } = require('node:test');

const ROOT = path.resolve(__dirname, '../../..');
const MODULE = path.resolve(process.env.MODULE ?? `${ROOT}/target/release/libredis_cell.so`);
const DAY = 24 * 60 * 60 * 1000;

const endings = [];
/** Registers a function to be called after all tests. The function registered last is called first. */
const atTheEnd = (end) => endings.unshift(end);
after(() => endings.forEach((end) => end()));

/** Creates a folder, which is removed after the tests, and returns its path. */
function folder() {
  const name = fs.mkdtempSync(path.join(os.tmpdir(), 'redis-cell-'));
  atTheEnd(() => fs.rmSync(name, { recursive: true }));
  return name;
}

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Calls `ask` until its result is truthy. Returns that result, or throws an error after two minutes. */
async function waitFor(what, ask) {
  for (let number = 0; number < 2400; number += 1) {
    const answer = await Promise.resolve().then(ask).catch(() => false);
    if (answer) return answer;
    await sleep(50);
  }
  throw new Error(`timed out while waiting until ${what}`);
}

/** Starts a server with these settings and environment variables. The server is killed after the tests. */
async function startServer(environment = {}, ...settings) {
  const port = await freePort();
  const words = ['--port', port, '--bind', '127.0.0.1', '--save', '', '--dir', folder(), '--loadmodule', MODULE];
  const env = { ...process.env, LC_ALL: 'C', ...environment };
  const program = process.env.SERVER ?? 'redis-server';
  const child = spawn(program, [...words, ...settings].map(String), { env, stdio: 'ignore' });
  atTheEnd(() => child.kill('SIGKILL'));
  const client = require('redis').createClient({ url: `redis://127.0.0.1:${port}`, disableOfflineQueue: true });
  client.on('error', () => {});
  atTheEnd(() => client.destroy());
  await client.connect();
  const call = (...words) => client.sendCommand(words.map(String));
  await waitFor('a server is ready', () => call('PING'));
  return { port, url: `redis://127.0.0.1:${port}`, process: child, call };
}

/** Starts a server whose wall clock moves only when a test calls `clock.pass(ms)`. */
async function startServerWithClock() {
  const own = folder();
  const source = `${ROOT}/tests/support/clock.c`;
  const words = ['-O1', '-shared', '-fPIC', '-nostdlib', '-o', `${own}/clock.so`, source];
  if (spawnSync(process.env.MODULE_CC ?? 'cc', words, { stdio: 'inherit' }).status) throw new Error('cc has failed');
  const clock = { now: 1_790_000_000_000n };
  clock.pass = (ms) => {
    clock.now += BigInt(ms);
    const numbers = new BigInt64Array([clock.now * 1_000_000n, 0n]);
    const file = fs.openSync(`${own}/clock`, fs.existsSync(`${own}/clock`) ? 'r+' : 'w');
    fs.writeSync(file, new Uint8Array(numbers.buffer), 0, 16, 0);
    fs.closeSync(file);
  };
  clock.pass(0);
  return { ...await startServer({ LD_PRELOAD: `${own}/clock.so`, CLOCK: `${own}/clock` }), clock };
}

/** For each library, a function that connects a client, and returns it with a `sendCommand` function for a store. */
const LIBRARIES = {
  'node-redis': async (url) => {
    const client = require('redis').createClient({ url, disableOfflineQueue: true });
    client.on('error', () => {});
    await client.connect();
    atTheEnd(() => client.isOpen && client.destroy());
    return { client, sendCommand: (...words) => client.sendCommand(words) };
  },
  ioredis: (url) => likeIoredis(require('ioredis').Redis, url),
  iovalkey: (url) => likeIoredis(require('iovalkey').Redis, url),
};

async function likeIoredis(Redis, url) {
  const options = { enableOfflineQueue: false, maxRetriesPerRequest: 0, autoResendUnfulfilledCommands: false };
  const client = new Redis(url, { ...options, keyPrefix: 'shop:' });
  client.on('error', () => {});
  await once(client, 'ready');
  atTheEnd(() => client.disconnect());
  return { client, sendCommand: (...words) => client.call(...words) };
}

/** Serves an application until the tests end. Returns a function that sends a request to it. */
async function serve(listener) {
  const server = require('node:http').createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  atTheEnd(() => server.close());
  atTheEnd(() => server.closeAllConnections());
  return (path = '/', options = {}) => fetch(`http://127.0.0.1:${server.address().port}${path}`, options);
}

/** Sends this many requests, one after another. Returns the status of each response. */
async function statuses(times, send) {
  const found = [];
  while (found.length < times) found.push((await send()).status);
  return found;
}

const times = (number, value) => Array(number).fill(value);
let made = 0;
/** Returns a key prefix that no other store in the test file uses. */
const newPrefix = () => `test${made += 1}:`;

module.exports = {
  DAY, LIBRARIES, ROOT, atTheEnd, folder, freePort, newPrefix, serve, startServer, startServerWithClock, statuses,
  times, waitFor,
};
