// Express, and a middleware that limits what comes after it.
// Beside node_redis.js, or beside ioredis.js: [HTTP_PORT=8080] [CLIENT=./ioredis.js] node express_app.js

const express = require('express');
const { connect, throttle } = require(process.env.CLIENT ?? './node_redis.js');

const client = connect();

// So many requests of a name, for each address: see "Which key" for others.
function limit(name, maxBurst, count, period) {
  return async (request, response, next) => {
    const [status, headers] = await throttle(client, `${name}:${request.ip}`, maxBurst, count, period);
    response.set(headers);
    if (status === 200) next();
    else response.status(status).send('Try again later\n');
  };
}

const app = express();
app.get('/', limit('hello', 2, 1, 60), (request, response) => response.send('Hello\n'));
app.listen(process.env.HTTP_PORT ?? 8080, '127.0.0.1');
