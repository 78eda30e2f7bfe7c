// @nestjs/throttler, behind one proxy.

require('reflect-metadata');
const { Controller, Get, HttpCode, Module, Post } = require('@nestjs/common');
const { APP_GUARD, NestFactory } = require('@nestjs/core');
const { Throttle, ThrottlerGuard, ThrottlerModule } = require('@nestjs/throttler');
const { NestStore } = require('redis-cell/nest');
const { client, sendCommand } = require('./client.js');

const limits = ThrottlerModule.forRoot({
  throttlers: [{ ttl: 24 * 60 * 60 * 1000, limit: 3 }],
  storage: new NestStore({ sendCommand, prefix: 'shop:' }),
});

class Site {}
const route = (name, ...decorators) => {
  Site.prototype[name] = () => 'Hello';
  const descriptor = Object.getOwnPropertyDescriptor(Site.prototype, name);
  decorators.forEach((decorate) => decorate(Site.prototype, name, descriptor));
};
route('login', Post('login'), HttpCode(200));
route('zero', Get('zero'), Throttle({ default: { limit: 0, getTracker: () => '\ud800' } }));
Controller()(Site);
class Application {}
const providers = [{ provide: APP_GUARD, useClass: ThrottlerGuard }];
Module({ imports: [limits], controllers: [Site], providers })(Application);

async function start() {
  const app = await NestFactory.create(Application);
  app.set('trust proxy', '127.0.0.1');
  await app.listen(process.env.HTTP_PORT, '127.0.0.1');
}
client.once('ready', start);
