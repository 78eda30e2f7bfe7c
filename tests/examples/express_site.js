// The example for Express behind a proxy, with routes that answer in further ways, by one limit of three a day.

const { app, limited } = require(`${process.cwd()}/express_app.js`);

app.set('trust proxy', '127.0.0.1');
const quota = [2, 1, 86400];
const [site, burst] = [limited('site', quota), limited('burst', [9, 10, 1])];
const callers = { acme: 'acme', 7: 7, '': '', 'an object': { id: 7 }, get 'an error'() { throw undefined; } };
const caller = async (request) => callers[request.get('X-Api-Key')];
const passes = async () => true;
const hello = (request, response) => response.send('Hello\n');
// A middleware, as one for timeouts, begins to answer before Redis does.
const early = (request, response, next) => {
  next();
  response.write('a');
  setTimeout(() => response.end('b'), 300);
};
app.all('/fails', site, () => { throw new Error('fails'); });
app.all('/missing', site, (request, response, next) => next());
app.all('/both', burst, site, hello);
app.all('/answered', early, site, hello);
app.all('/caller', limited('site', quota, { caller }), hello);
app.all('/passes', limited('site', quota, { unanswered: passes }), hello);
app.all('/forgotten', limited('site', quota, { unanswered: () => [passes()] }), hello);
app.listen(process.env.HTTP_PORT, '127.0.0.1');
