-- Copies a limiter of redis_rate, the Go library, to CL.THROTTLE:
--     redis-cli --eval from_redis_rate.lua rate:user123 user123
-- redis_rate stores the same time as CL.THROTTLE, the one at which all tokens will be back. Its unit is seconds since
-- 2017, and its type is a double, which is precise to a microsecond.
if #KEYS ~= 2 or #ARGV > 0 then
    return redis.error_reply('ERR wrong number of arguments')
end
local moment, here = tonumber(redis.call('GET', KEYS[1])), redis.call('GET', KEYS[2])
if here and (here:find('%D') or #here == 0 or #here % 19 > 0) then
    return redis.error_reply('ERR the second key holds no rate limiter state')
end
local nanoseconds = moment and (moment + 1483228800) * 1e9
-- tonumber also accepts "nan", which is not greater than 0.
if not moment or not (nanoseconds > 0) then
    return 0
elseif nanoseconds >= 2 ^ 63 then
    return redis.error_reply('ERR the time is after the year 2262, the last one that CL.THROTTLE supports')
end
local text = string.format('%019.0f', nanoseconds)
-- Keep a state that is later or has several quotas: overwriting it would give back tokens that calls have taken.
if here and (#here > 19 or here > text) then
    return 0
end
redis.call('SET', KEYS[2], text, 'PXAT', string.format('%.0f', math.ceil(nanoseconds / 1e6)))
return 1
