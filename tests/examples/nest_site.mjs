// @nestjs/throttler, behind one proxy.

import 'reflect-metadata';
import { Controller, HttpCode, Post } from '@nestjs/common';
import { APP_GUARD, NestFactory } from '@nestjs/core';
import { ThrottlerGuard, ThrottlerModule } from '@nestjs/throttler';
import { NestStore } from 'redis-cell/nest';
import { client } from './node_redis.mjs';

await new Promise((resolve) => client.once('ready', resolve));
const sendCommand = (...words) => client.sendCommand(words);
const storage = new NestStore({ sendCommand, prefix: 'shop:' });
const limits = ThrottlerModule.forRoot({ throttlers: [{ ttl: 24 * 60 * 60 * 1000, limit: 3 }], storage });

class Site { login() { return 'Welcome'; } }
const login = Object.getOwnPropertyDescriptor(Site.prototype, 'login');
for (const decorate of [Post('login'), HttpCode(200)]) decorate(Site.prototype, 'login', login);
Controller()(Site);
const providers = [{ provide: APP_GUARD, useClass: ThrottlerGuard }];

const app = await NestFactory.create({ module: class {}, imports: [limits], controllers: [Site], providers });
app.set('trust proxy', '127.0.0.1');
await app.listen(process.env.HTTP_PORT, '127.0.0.1');
