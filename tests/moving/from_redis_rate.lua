-- Carries a limiter of redis_rate, the Go library, over to CL.THROTTLE:
--     redis-cli --eval from_redis_rate.lua rate:user123 user123
-- What it stores is CL.THROTTLE's moment, but in seconds since 2017. A double holds it to the microsecond.
local moment = redis.call('GET', KEYS[1])
if not moment then
    return 0
end
local nanoseconds = (tonumber(moment) + 1483228800) * 1e9
redis.call('SET', KEYS[2], string.format('%.0f', nanoseconds), 'PXAT', math.ceil(nanoseconds / 1e6))
return 1
