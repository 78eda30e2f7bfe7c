-- A guaranteed minimum for each tenant of a pool. The rest of the pool is lent to any tenant that needs more.
--     redis-cli --eval minimum.lua {pool}:acme {pool}:all , 9 40 60 79 100 60 1
-- KEYS: the tenant's limiter and the pool's. ARGV: max_burst, count and period of the minimum, then those of the pool,
-- and the quantity (1 by default). The reply is like that of CL.THROTTLE: the five integers of the limiter that
-- decides.
-- Permissions: +eval +evalsha +script +cl.throttle +cl.charge
if #KEYS ~= 2 or #ARGV < 6 or #ARGV > 7 then
    return redis.error_reply('ERR wrong number of arguments')
elseif KEYS[1] == KEYS[2] then
    return redis.error_reply('ERR the tenant and the pool must have different keys')
end
local quantity = ARGV[7] or 1
local own = redis.pcall('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3], quantity)
if own.err then
    -- Remove what Redis 6.2 puts in front of an error code such as READONLY: the script's name and line.
    return redis.error_reply((own.err:gsub('^@user_script: %d+: %-', '')))
elseif own[1] == 0 then
    redis.call('CL.CHARGE', KEYS[2], ARGV[4], ARGV[5], ARGV[6], quantity)
    return own
end
local lent = redis.call('CL.THROTTLE', KEYS[2], ARGV[4], ARGV[5], ARGV[6], quantity)
-- If both refuse the call, reply with the shorter wait. A wait of -1 means that the call can never pass.
local own_is_shorter = own[4] >= 0 and (lent[4] < 0 or own[4] < lent[4])
return lent[1] == 1 and own_is_shorter and own or lent
