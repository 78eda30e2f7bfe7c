-- Carries a limiter of redis_rate, the Go library, over to CL.THROTTLE:
--     redis-cli --eval from_redis_rate.lua rate:user123 user123
-- redis_rate stores the same moment as CL.THROTTLE, but in seconds since 2017. A double holds it to the microsecond.
local moment = tonumber(redis.call('GET', KEYS[1]))
if not moment then
    return 0
end
local nanoseconds = (moment + 1483228800) * 1e9
local text, here = string.format('%.0f', nanoseconds), redis.call('GET', KEYS[2])
-- A later state, or one of several quotas, stays as it is: tokens that calls have taken here are not given back.
if here and (#here > 19 or here > text) then
    return 0
end
redis.call('SET', KEYS[2], text, 'PXAT', string.format('%.0f', math.ceil(nanoseconds / 1e6)))
return 1
