// Calls whose quantity is no number of tokens. Prints "refused" for each one that is.

const { throttle } = require(`${process.cwd()}/node_redis.js`);

for (const quantity of [-1, 2 ** 63, 1.5, NaN, '1']) {
  try {
    throttle({}, 'user123', [2, 1, 60], 'open', quantity).then(console.log);
  } catch (error) {
    console.log('refused');
  }
}
