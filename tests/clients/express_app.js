// Express, and a middleware that limits what comes after it.
// Beside answer.js and node_redis.js or ioredis.js: [HTTP_PORT=8080] [CLIENT=./ioredis.js] node express_app.js

const express = require('express');
const { connect, throttle } = require(process.env.CLIENT ?? './node_redis.js');

// That many requests of a name, for each address: see "Which key" for others.
function limit(client, name, quota, fail) {
  return async (request, response, next) => {
    const [status, headers] = await throttle(client, `${name}:${request.ip}`, quota, fail);
    response.set(headers);
    if (status === 200) next();
    else response.status(status).send('Try again later\n');
  };
}

// It serves when there is a connection: calls without one would not be limited.
connect().then((client) => {
  const app = express();
  app.get('/', limit(client, 'hello', [2, 1, 60], 'open'), (request, response) => response.send('Hello\n'));
  app.post('/login', limit(client, 'login', [2, 1, 60], 'closed'), (request, response) => response.send('Hello\n'));
  app.listen(process.env.HTTP_PORT ?? 8080, '127.0.0.1');
});
