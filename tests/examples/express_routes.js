  // Further routes of the example for Express, by one limit of three a day.
  const site = limited(new Limit(connection, 'site', [[2, 1, 86400]]));
  const burst = limited(new Limit(connection, 'burst', [[9, 10, 1]]));
  app.all('/fails', site, () => { throw new Error('fails'); });
  app.all('/missing', site, (request, response, next) => next());
  app.all('/moved', site, (request, response) => response.redirect('/'));
  app.all('/streamed', site, (request, response) => response.write('a') && response.end('b'));
  app.all('/stacked', burst, site, burst, hello);
  app.get('/health', hello);
