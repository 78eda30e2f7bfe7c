// A call while every turn of the event loop takes longer than a call may wait.

const { connect, throttle } = require(`${process.cwd()}/${process.env.CLIENT}`);

connect().then((client) => {
  let late = true;
  throttle(client, 'user123', [2, 1, 60], 'open').then(([, headers]) => {
    console.log(headers['X-RateLimit-Remaining']);
    late = false;
  });
  const turn = () => {
    for (const end = Date.now() + 200; Date.now() < end;);
    if (late) setImmediate(turn);
    else process.exit();
  };
  turn();
});
