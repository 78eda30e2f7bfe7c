// Further limits of the example in docs/frameworks.md, which comes before this text. All are behind one proxy.

app.set('trust proxy', '127.0.0.1');
const respond = (request, response) => response.status(Number(request.query.status ?? 200)).send('Done');
const limited = (name, options, quotas) => {
  const store = new RedisCellStore({ sendCommand, prefix: `${name}:`, quotas });
  const limiter = rateLimit({ limit: 3, windowMs, ...options, store });
  app.get(`/${name}`, limiter, respond);
  app.delete(`/${name}`, (request, response) => limiter.resetKey(request.ip).then(() => response.send('Reset')));
};
limited('zero', { limit: 0, keyGenerator: () => '\ud800' });
limited('failures', { skipSuccessfulRequests: true });
limited('successes', { skipFailedRequests: true });
limited('quotas', { limit: 2 }, [{ burst: 2, limit: 10, windowMs: 1000 }, { limit: 3, windowMs }]);
client.once('ready', () => app.listen(process.env.HTTP_PORT, '127.0.0.1'));
