// Reads lines such as "200 open", makes that many calls at once, and prints a line of their statuses.

const { connect, throttle } = require(`${process.cwd()}/${process.env.CLIENT}`);

connect().then(async (client) => {
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const [calls, fail] = line.split(' ');
    const call = () => throttle(client, fail, [2, 1, 60], fail);
    const answers = await Promise.all(Array.from({ length: calls }, call));
    console.log(answers.map(([status]) => status).join(' '));
  }
});
