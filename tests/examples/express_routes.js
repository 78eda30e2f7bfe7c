// Further routes of express_app.js, which answer in each way, and one for all methods.

const { Readable } = require('stream');

module.exports = (app, site) => {
  app.get('/fails', site, () => { throw new Error('fails'); });
  app.get('/missing', site, (request, response, next) => next());
  app.get('/moved', site, (request, response) => response.redirect('/'));
  app.get('/streamed', site, (request, response) => Readable.from(['Hello']).pipe(response));
  app.all('/options', site, (request, response) => response.send('Hello'));
};
