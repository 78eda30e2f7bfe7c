// Calls CL.THROTTLE by docs/recipes/module_or_script.js with the words of each line.

const { createClient } = require('redis');
const { Limiter } = require('../../docs/recipes/module_or_script.js');

const client = createClient({ socket: { host: '127.0.0.1', port: Number(process.env.REDIS_PORT) }, disableOfflineQueue: true });
client.on('error', () => {});
const limiter = new Limiter(client);
client.connect().then(() => require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const answered = limiter.throttle(...line.split(' ')).then((answer) => answer.slice(0, 3));
  const shown = answered.then((answer) => [...answer, limiter.module ? 'module' : 'script'].join(' '));
  shown.catch((error) => error.message).then(console.log);
}));
