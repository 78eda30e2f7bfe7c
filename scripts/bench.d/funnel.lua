-- The textbook funnel: a hash holds its water level and the time of the last call.
-- Takes KEYS[1], max_burst, count, period in seconds, quantity. Replies like CL.THROTTLE.
local capacity, rate = ARGV[1] + 1, ARGV[2] / ARGV[3]
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local state = redis.call('HMGET', KEYS[1], 'water', 'at')
local water = math.max((tonumber(state[1]) or 0) - (now - (tonumber(state[2]) or now)) * rate, 0)
if water + ARGV[4] > capacity then
  local wait = (water + ARGV[4] - capacity) / rate
  return {1, capacity, math.floor(capacity - water), math.ceil(wait), math.ceil(water / rate)}
end
water = water + ARGV[4]
redis.call('HSET', KEYS[1], 'water', string.format('%.6f', water), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(water / rate * 1000))
return {0, capacity, math.floor(capacity - water), -1, math.ceil(water / rate)}
