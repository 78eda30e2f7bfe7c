-- GCRA as rate-limiting scripts usually implement it: the key holds the theoretical arrival time (TAT), a float in
-- seconds. ARGV: max_burst, count, the period in seconds, and the quantity. The reply is like that of CL.THROTTLE.
local limit, interval = ARGV[1] + 1, ARGV[3] / ARGV[2]
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local tat = math.max(tonumber(redis.call('GET', KEYS[1])) or now, now)
local new_tat = tat + interval * ARGV[4]
local wait = new_tat - limit * interval - now
if wait > 0 then
  return {1, limit, math.floor((now + limit * interval - tat) / interval), math.ceil(wait), math.ceil(tat - now)}
end
redis.call('SET', KEYS[1], string.format('%.9f', new_tat), 'PX', math.ceil((new_tat - now) * 1000))
return {0, limit, math.floor(-wait / interval), -1, math.ceil(new_tat - now)}
