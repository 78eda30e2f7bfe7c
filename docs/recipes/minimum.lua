-- A guaranteed minimum for each tenant. The rest of the pool is lent to any tenant.
--     redis-cli --eval minimum.lua {pool}:acme {pool}:all , 9 40 60 79 100 60 1
-- KEYS: the tenant's limiter and the pool. ARGV: max_burst, count and period of the minimum, then those of the pool, and
-- the quantity (1 by default). Replies like CL.THROTTLE, with the five integers of the limiter that decides.
-- Permissions: +eval +evalsha +script +cl.throttle +cl.charge
if #KEYS ~= 2 or #ARGV < 6 or #ARGV > 7 then
    return redis.error_reply('ERR wrong number of arguments')
elseif KEYS[1] == KEYS[2] then
    return redis.error_reply('ERR the tenant and the pool need a key each')
end
local quantity = ARGV[7] or 1
local own = redis.pcall('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3], quantity)
if own.err then
    -- Redis 6.2 puts the script's line before the error code, such as READONLY.
    return redis.error_reply((own.err:gsub('^@user_script: %d+: %-', '')))
elseif own[1] == 0 then
    redis.call('CL.CHARGE', KEYS[2], ARGV[4], ARGV[5], ARGV[6], quantity)
    return own
end
local lent = redis.call('CL.THROTTLE', KEYS[2], ARGV[4], ARGV[5], ARGV[6], quantity)
-- If both limit the call, the shorter wait counts. -1 means that a call can never pass.
local own_is_shorter = own[4] >= 0 and (lent[4] < 0 or own[4] < lent[4])
return lent[1] == 1 and own_is_shorter and own or lent
