#!lua name=in_flight

-- Limits how many calls may be in flight at once; each has a lease. FUNCTION LOAD the file, and then
--     FCALL in_flight_acquire 1 model 16 30000 call-7    limit, lease in milliseconds, the call's own name
--     FCALL in_flight_renew   1 model 30000 call-7       lease, name
--     FCALL in_flight_release 1 model call-7             name
--     FCALL_RO in_flight_count 1 model
-- A key is a sorted set of the calls' names, by the moment at which each lease ends, in microseconds since 1970.

local function now()
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

local function text(number)
    return string.format('%.0f', number)
end

local function whole(name, argument)
    local number = tonumber(argument)
    if not number or number < 1 or number > 1e12 or number ~= math.floor(number) then
        return nil, redis.error_reply('ERR ' .. name .. ' must be a whole number, 1 or more')
    end
    return number
end

local function holds(key, call, now)
    local ends = redis.call('ZSCORE', key, call)
    return ends and tonumber(ends) > now
end

local function hold(key, call, ends)
    -- A caller without these rights would hold a place that never ends.
    if not (redis.acl_check_cmd('ZRANGE', key, 0, 0) and redis.acl_check_cmd('PEXPIREAT', key, 0)) then
        error({err = 'NOPERM a place needs the rights to call ZRANGE and PEXPIREAT'})
    end
    redis.call('ZADD', key, text(ends), call)
    -- The key ends with the last lease.
    local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
    redis.call('PEXPIREAT', key, text(math.ceil(last / 1000)))
end

-- Replies {limited, limit, remaining, retry_after}. retry_after is the time, in milliseconds, until the first lease
-- ends: a place is free by then, and often before. A call that already holds a place gets a new lease.
local function acquire(keys, args)
    local limit, wrong = whole('limit', args[1])
    if not limit then return wrong end
    local lease, wrong = whole('lease', args[2])
    if not lease then return wrong end
    local key, call, now = keys[1], args[3], now()
    if not call then return redis.error_reply('ERR name is missing') end
    redis.call('ZREMRANGEBYSCORE', key, '-inf', text(now))
    local held = redis.call('ZCARD', key)
    if redis.call('ZSCORE', key, call) then
        held = held - 1
    elseif held >= limit then
        local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
        return {1, limit, 0, math.ceil((first - now) / 1000)}
    end
    hold(key, call, now + lease * 1000)
    return {0, limit, math.max(limit - held - 1, 0), -1}
end

-- Replies 1 and prolongs the lease if the call still holds its place, or 0 if its lease has ended.
local function renew(keys, args)
    local lease, wrong = whole('lease', args[1])
    if not lease then return wrong end
    local key, call, now = keys[1], args[2], now()
    if not call then return redis.error_reply('ERR name is missing') end
    if not holds(key, call, now) then return 0 end
    hold(key, call, now + lease * 1000)
    return 1
end

-- Replies 1 if the call held its place until now, 0 if not. A second release changes nothing.
local function release(keys, args)
    local key, call = keys[1], args[1]
    if not call then return redis.error_reply('ERR name is missing') end
    local held = holds(key, call, now())
    redis.call('ZREM', key, call)
    return held and 1 or 0
end

local function count(keys)
    return redis.call('ZCOUNT', keys[1], '(' .. text(now()), '+inf')
end

redis.register_function('in_flight_acquire', acquire)
-- allow-oom: calls that end while the server is at maxmemory must free their places too.
redis.register_function{function_name = 'in_flight_renew', callback = renew, flags = {'allow-oom'}}
redis.register_function{function_name = 'in_flight_release', callback = release, flags = {'allow-oom'}}
redis.register_function{function_name = 'in_flight_count', callback = count, flags = {'no-writes'}}
