-- Carries a limiter of Dragonfly's over to CL.THROTTLE, here with Dragonfly at port 6380:
--     redis-cli --eval from_dragonfly.lua user123 , "$(redis-cli -p 6380 GET user123)"
-- It stores CL.THROTTLE's state, with CL.THROTTLE's expiry; it stores nothing if Dragonfly has no limiter of this name.
-- A later state, or one of several quotas, stays as it is: tokens that calls have taken here are not given back.
if #KEYS ~= 1 or #ARGV ~= 1 then
    return redis.error_reply('ERR wrong number of arguments')
end
local moment, here = ARGV[1], redis.call('GET', KEYS[1])
if here and (here:find('%D') or #here == 0 or #here % 19 > 0) then
    return redis.error_reply('ERR the key holds no rate limiter state')
end
if #moment ~= 19 or moment:find('%D') or (here and (#here > 19 or here > moment)) then
    return 0
elseif moment > '9223372036854775807' then
    return redis.error_reply('ERR the moment is after the year 2262, to which CL.THROTTLE counts')
end
local milliseconds = tonumber(moment:sub(1, 13)) + (moment:sub(14) > '000000' and 1 or 0)
redis.call('SET', KEYS[1], moment, 'PXAT', string.format('%.0f', math.max(milliseconds, 1)))
return 1
