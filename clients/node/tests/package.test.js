// Tests of the npm package: its files, its types, and how applications load it.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { ROOT, folder, startServer } = require('./support.js');

const PACKAGE = path.resolve(__dirname, '..');
const LIBRARIES = path.dirname(path.dirname(require.resolve('typescript/package.json')));
// The variable NPM may contain another npm command, with arguments.
const NPM = process.env.NPM?.split(' ') ?? ['npm'];
const NAMES = ['express', 'fastify', 'nest'];

/** Runs a command, which must succeed, and returns its output. */
function run(words, options) {
  const { status, stdout, stderr } = spawnSync(words[0], words.slice(1), { encoding: 'utf8', ...options });
  assert.equal(status, 0, `${words.join(' ')}\n${stdout}${stderr}`);
  return stdout;
}

const tsc = (words, options) => run([process.execPath, require.resolve('typescript/bin/tsc'), ...words], options);

/** Creates a folder with these files, our package and the libraries, and returns the folder's path. */
function application(files) {
  const own = folder();
  fs.mkdirSync(`${own}/node_modules`);
  for (const name of fs.readdirSync(LIBRARIES)) fs.symlinkSync(`${LIBRARIES}/${name}`, `${own}/node_modules/${name}`);
  fs.symlinkSync(PACKAGE, `${own}/node_modules/redis-cell`);
  for (const [name, text] of Object.entries(files)) fs.writeFileSync(`${own}/${name}`, text);
  return own;
}

// To update the declarations, run UPDATE=yes node --test clients/node/tests/package.test.js
test('the declarations match the sources', () => {
  const own = folder();
  const copy = (names, from, to) => names.forEach((name) => fs.copyFileSync(`${from}/${name}`, `${to}/${name}`));
  const filesIn = (name, end) => fs.readdirSync(name).filter((file) => file.endsWith(end));
  // Copy only the sources, because tsc would read existing declarations instead of the sources.
  copy([...filesIn(PACKAGE, '.js'), 'tsconfig.json'], PACKAGE, own);
  tsc(['-p', own, '--typeRoots', `${LIBRARIES}/@types`]);
  const made = filesIn(own, '.d.ts');
  if (process.env.UPDATE) copy(made, own, PACKAGE);
  assert.deepEqual(filesIn(PACKAGE, '.d.ts'), made);
  for (const name of made) {
    assert.equal(fs.readFileSync(`${PACKAGE}/${name}`, 'utf8'), fs.readFileSync(`${own}/${name}`, 'utf8'), name);
  }
});

const USER = `
import express from 'express';
import Fastify from 'fastify';
import fastifyRateLimit from '@fastify/rate-limit';
import { Hono } from 'hono';
import { rateLimiter } from 'hono-rate-limiter';
import { rateLimit } from 'express-rate-limit';
import { slowDown } from 'express-slow-down';
import { ThrottlerModule } from '@nestjs/throttler';
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster } from 'redis';
import { RedisCellStore, Unanswered } from 'redis-cell/express';
import { fastifyStore } from 'redis-cell/fastify';
import { NestStore } from 'redis-cell/nest';

const client = createClient();
const redis = new Redis();
const cluster = createCluster({ rootNodes: [] });
const other = new Cluster([]);
const sendCommand = (...words: string[]) => client.sendCommand(words);
const stores = [
  new RedisCellStore({ sendCommand, prefix: 'a:', timeout: 50 }),
  new RedisCellStore({ sendCommand: (...words) => redis.call(...words), prefix: 'b:' }),
  new RedisCellStore({
    sendCommandCluster: ({ key, isReadOnly, command }) => cluster.sendCommand(key, isReadOnly, command), prefix: 'c:',
  }),
  new RedisCellStore({
    sendCommandCluster: ({ key, command: [name, , ...words] }) =>
      other.eval('return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))', 1, key, name, ...words),
    prefix: 'd:',
    quotas: async (key) => [{ limit: key.length, windowMs: 1000, burst: 2 }, { limit: 9, windowMs: 60000 }],
  }),
];
express().use(rateLimit({ limit: 3, windowMs: 1000, store: stores[0] }), slowDown({ delayAfter: 1, store: stores[1] }));
const limiter = rateLimiter({ limit: 3, windowMs: 1000, keyGenerator: () => 'key', store: stores[2] });
new Hono().use(limiter).onError((error, context) => context.text(error instanceof Unanswered ? 'down' : error.message));
Fastify().register(fastifyRateLimit, { store: fastifyStore({ sendCommand, prefix: 'shop:' }) });
const storage = new NestStore({ sendCommand, prefix: 'shop:' });
ThrottlerModule.forRoot({ throttlers: [{ ttl: 1000, limit: 3 }], storage });
// @ts-expect-error: the prefix is missing
new NestStore({ sendCommand });
`;

for (const [resolution, ...options] of [
  ['node16', '--module', 'node16'], ['bundler', '--module', 'esnext'], ['node10', '--module', 'commonjs'],
]) {
  test(`an application in TypeScript compiles with moduleResolution ${resolution}`, () => {
    const own = application({ 'user.ts': USER, 'package.json': '{ "type": "module" }' });
    // Use skipLibCheck, because the declarations of some libraries need other options.
    tsc(['--strict', '--noEmit', '--skipLibCheck', '--esModuleInterop', '--target', 'es2022', '--types', 'node',
      '--moduleResolution', resolution, ...options, 'user.ts'], { cwd: own });
  });
}

test('our declarations alone pass a strict check, without skipLibCheck', () => {
  const text = NAMES.map((name) => `export * as ${name} from 'redis-cell/${name}';`).join('\n');
  const own = application({ 'user.ts': text });
  tsc(['--strict', '--noEmit', '--target', 'es2022', '--module', 'node16', '--types', 'node', 'user.ts'], { cwd: own });
});

test('npm installs the package, and CommonJS and ES modules load it', () => {
  const own = folder();
  fs.writeFileSync(`${own}/package.json`, '{}');
  run([...NPM, 'install', '--offline', '--no-audit', '--no-fund', PACKAGE], { cwd: own });
  const names = 'RedisCellStore,Unanswered NestStore,Unanswered Unanswered,fastifyStore';
  const show = `const shown = (found) => Object.keys(found).filter((name) => /^[A-Zf]/.test(name)).sort().join();
    console.log(shown(e), shown(n), shown(f));`;
  const [e, f, n] = NAMES.map((name) => `redis-cell/${name}`);
  const required = `['${e}', '${f}', '${n}'].map((name) => require(name))`;
  fs.writeFileSync(`${own}/a.cjs`, `const [e, f, n] = ${required}; ${show}`);
  fs.writeFileSync(`${own}/a.mjs`, `import * as e from '${e}'; import * as f from '${f}'; import * as n from '${n}';
    import { RedisCellStore } from '${e}'; import { fastifyStore } from '${f}'; import { NestStore } from '${n}';
    ${show}`);
  for (const file of ['a.cjs', 'a.mjs']) assert.equal(run([process.execPath, file], { cwd: own }).trim(), names, file);
});

test('the archive has the sources, the declarations and a README, and depends on nothing', () => {
  const [{ files }] = JSON.parse(run([...NPM, 'pack', '--dry-run', '--json'], { cwd: PACKAGE }));
  const sources = fs.readdirSync(PACKAGE).filter((name) => /\.(js|d\.ts)$/.test(name));
  assert.deepEqual(files.map((file) => file.path).sort(), ['README.md', 'package.json', ...sources].sort());
  const { dependencies, peerDependencies, version } = require('../package.json');
  assert.deepEqual([dependencies, peerDependencies], [undefined, undefined]);
  assert.match(fs.readFileSync(`${ROOT}/Cargo.toml`, 'utf8'), new RegExp(`^version = "${version}"$`, 'm'));
});

test('no source has more than 90 lines', () => {
  const sources = fs.readdirSync(PACKAGE).filter((name) => /(?<!\.d)\.(js|ts)$/.test(name));
  assert.ok(sources.length >= 6);
  for (const name of sources) assert.ok(fs.readFileSync(`${PACKAGE}/${name}`, 'utf8').split('\n').length <= 91, name);
});

test('a process ends after its server and its client are closed', async () => {
  const { url } = await startServer();
  const own = application({ 'site.mjs': `
    import express from 'express';
    import { rateLimit } from 'express-rate-limit';
    import { createClient } from 'redis';
    import { RedisCellStore } from 'redis-cell/express';
    const client = await createClient({ url: '${url}' }).connect();
    const sendCommand = (...words) => client.sendCommand(words);
    const store = new RedisCellStore({ sendCommand, prefix: 'login:', timeout: 3_600_000 });
    const app = express().get('/', rateLimit({ store }), (request, response) => response.send('Hello'));
    const server = app.listen(0, async () => {
      const response = await fetch('http://127.0.0.1:' + server.address().port);
      console.log(response.status);
      server.close();
      await client.close();
    });` });
  // The store's timeout is an hour. If its timer kept the process alive, the process would be killed after two minutes.
  assert.equal(run([process.execPath, 'site.mjs'], { cwd: own, timeout: 120_000 }), '200\n');
});
