#!lua name=calendar_quota

-- Calendar quotas, such as 100 until midnight and 1,000 until the end of the month, with an optional limiter. A call
-- takes tokens from all quotas and the limiter, or from none.
--     FCALL calendar_throttle 3 {alice}:2099-12-31 {alice}:2099-12 {alice}:rate 1 100 4102444800 1000 4102444800 9 10 1
-- With the same keys and arguments, calendar_charge always takes the tokens, and calendar_look (FCALL_RO) takes none.
-- Keys: any number of counters, and then the limiter, if there is one. Arguments: the quantity (negative for a refund);
-- the quota of each counter and the end of its period, in seconds since 1970; and the limiter's max_burst, count and
-- period. The reply is like that of CL.MTHROTTLE. A counter holds the tokens used, and expires when its period ends.
-- Permissions: +fcall +fcall_ro +get +set +del +expiretime +time +cl.look +cl.charge +cl.throttle

-- Raises an error. If a counter has caused it, the message includes the number of the counter's key.
local function fail(message, number)
    error({err = 'ERR ' .. message .. (number and ' (key ' .. number .. ')' or '')})
end

local function whole(name, text, least, most, number)
    -- Refuse -0, as CL.THROTTLE does.
    local value = text:match('^%-?%d+$') and not text:match('^%-0+$') and tonumber(text)
    if not value or value < least or value > most then
        fail(string.format('%s must be a whole number from %.0f to %.0f', name, least, most), number)
    end
    return value
end

-- MOST is the largest number allowed: the sum of two numbers up to MOST is exact in Lua. LAST is the latest end of a
-- period. An end in milliseconds, given by mistake, is larger and therefore refused.
local MOST, LAST = 999999999999999, 99999999999

-- Formats a number as an argument of a command: Redis 7.2 would send 1800000000 as 1.8e+9.
local function text(number)
    return string.format('%.0f', number)
end

local function read(number, key, quota, ends, now)
    local expires, digits = redis.call('EXPIRETIME', key), '0'
    -- Compare the times, because a key still exists in the millisecond in which it expires.
    if expires == -1 or expires > now then
        digits = redis.call('GET', key)
    end
    if expires == -1 or not digits:match('^%d+$') or #digits > 15 then
        fail('the key holds no counter', number)
    end
    -- Keep the later end, so that users who change their time zone cannot shorten the day.
    return {key = key, quota = quota, used = tonumber(digits), ends = math.max(ends, expires)}
end

-- Does what `command` says: CL.THROTTLE takes the tokens from all keys or none, CL.CHARGE always takes them, and
-- CL.LOOK takes nothing.
local function decide(keys, args, command)
    local takes, charges = command ~= 'CL.LOOK', command == 'CL.CHARGE'
    local limiter = #args == 2 * #keys + 2 and keys[#keys]
    if #keys == 0 or not limiter and #args ~= 2 * #keys + 1 then
        fail('wrong number of arguments')
    end
    local seen = {}
    for number, key in ipairs(keys) do
        if seen[key] then
            fail('key ' .. number .. ' is the same as key ' .. seen[key])
        end
        seen[key] = number
    end
    local clock = redis.call('TIME')
    local now = clock[1] + clock[2] / 1000000
    local quantity = whole('quantity', args[1], takes and -MOST or 0, MOST)

    local counters, limited = {}, false
    for number = 1, #keys - (limiter and 1 or 0) do
        local key, quota = keys[number], whole('quota', args[2 * number], 0, MOST, number)
        local ends = whole('end', args[2 * number + 1], 0, LAST, number)
        local counter = read(number, key, quota, ends, now)
        if quantity >= 0 and counter.ends <= now then
            fail('the period has ended', number)
        elseif takes and not (redis.acl_check_cmd('SET', key, '0') and redis.acl_check_cmd('DEL', key)) then
            -- Check first: without these permissions, tokens would be taken from the limiter but not from the counters.
            error({err = 'NOPERM this function needs the permissions to call SET and DEL'})
        end
        if charges and counter.used + quantity > MOST then
            fail('the counter would have more than 15 digits', number)
        end
        counter.limited = quantity >= 0 and counter.used + quantity > quota
        limited = limited or counter.limited
        counters[number] = counter
    end
    local answer
    if limiter then
        local call = (charges or not limited) and command or 'CL.LOOK'
        answer = redis.call(call, limiter, args[#args - 2], args[#args - 1], args[#args], text(quantity))
        limited = limited or answer[1] == 1
    end
    takes = charges or takes and not limited

    local reply = {limited and 1 or 0}
    for number, counter in ipairs(counters) do
        local used, left = counter.used, math.ceil(counter.ends - now)
        if takes then
            used = math.max(used + quantity, 0)
        end
        if used == 0 and counter.used > 0 then
            redis.call('DEL', counter.key)
        elseif used ~= counter.used then
            redis.call('SET', counter.key, text(used), 'EXAT', text(counter.ends))
        end
        local never = not counter.limited or quantity > counter.quota and not charges
        reply[number + 1] = {
            counter.limited and 1 or 0, counter.quota, math.max(counter.quota - used, 0),
            never and -1 or left, used > 0 and left or 0,
        }
    end
    table.insert(reply, answer)
    return reply
end

redis.register_function('calendar_throttle', function(keys, args) return decide(keys, args, 'CL.THROTTLE') end)
redis.register_function('calendar_charge', function(keys, args) return decide(keys, args, 'CL.CHARGE') end)
redis.register_function{
    function_name = 'calendar_look',
    callback = function(keys, args) return decide(keys, args, 'CL.LOOK') end,
    flags = {'no-writes'},
}
