-- CL.THROTTLE as a script, for a server that loads no modules: the same arguments, reply and stored state.
--     redis-cli --eval gcra.lua user123 , 15 30 60 1
-- KEYS: the limiter. ARGV: max_burst, count, the period in seconds; the quantity, by default 1. The script refuses
-- several quotas, and a key that holds the state of several.
--
-- Every number in a script is a double, which is exact for whole numbers up to 2^53; nanoseconds since 1970 are more.
-- A moment or a span is therefore a pair of whole seconds and the nanoseconds after them, and a result that would not
-- be exact is an error. The server's TIME is in microseconds, and so are the moments of decisions.

local NANO = 1000000000
local EXACT = 2 ^ 53

local function whole(name, text)
    if text == '0' or (text:match('^%-?[1-9]%d*$') and math.abs(tonumber(text)) < EXACT) then
        return tonumber(text)
    end
    error({err = 'ERR ' .. name .. ' is not an integer or out of range'})
end

-- Calls a command. Its error becomes the script's, with the same text on every server.
local function call(...)
    local answer = redis.pcall(...)
    if type(answer) == 'table' and answer.err then
        error(answer)
    end
    return answer
end

-- Returns the quotient and the rest, exact for 0 <= a < 2^53.
local function divide(a, b)
    local rest = math.fmod(a, b)
    return (a - rest) / b, rest
end

local function add(a, b)
    local carry, nanos = divide(a[2] + b[2], NANO)
    return {a[1] + b[1] + carry, nanos}
end

-- Returns the difference. If it is below zero, its seconds are negative and its nanoseconds are not.
local function subtract(a, b)
    local nanos = a[2] - b[2]
    if nanos < 0 then
        return {a[1] - b[1] - 1, nanos + NANO}
    end
    return {a[1] - b[1], nanos}
end

local function after(a, b)
    return a[1] > b[1] or (a[1] == b[1] and a[2] > b[2])
end

local function round_up(span)
    return span[2] > 0 and span[1] + 1 or span[1]
end

local function throttle(key, arguments)
    if #arguments < 3 or #arguments > 4 then
        error({err = "ERR wrong number of arguments for 'cl.throttle' command"})
    end
    local max_burst, count = whole('max_burst', arguments[1]), whole('count', arguments[2])
    local period, quantity = whole('period', arguments[3]), whole('quantity', arguments[4] or '1')
    if max_burst < -1 then
        error({err = 'ERR max_burst must be -1 or more'})
    elseif count < 1 then
        error({err = 'ERR count must be 1 or more'})
    elseif period < 1 then
        error({err = 'ERR period must be 1 or more'})
    end
    local limit = max_burst + 1
    -- The product of NANO and a rest below count must be exact too.
    if count > 9000000 or math.max(limit, -quantity) * period >= EXACT then
        error({err = 'ERR these numbers are too large for a script to be exact'})
    end
    -- Returns the time in which this many tokens come back, rounded down.
    local function time(tokens)
        local seconds, rest = divide(tokens * period, count)
        return {seconds, (divide(rest * NANO, count))}
    end

    local clock = call('TIME')
    local now = {tonumber(clock[1]), clock[2] * 1000}
    local tolerance = time(limit)
    if after(add(now, tolerance), {9223372036, 854775807}) then
        error({err = 'ERR max_burst, count and period: the tokens would be back only after the year 2262'})
    end
    local tat = now
    local stored = call('GET', key)
    if stored then
        if not stored:match('^%d+$') or #stored ~= 19 or stored > '9223372036854775807' then
            error({err = 'ERR the key holds no rate limiter state'})
        end
        local moment = {tonumber(stored:sub(1, 10)), tonumber(stored:sub(11))}
        tat = after(moment, now) and moment or now
    end

    local function remaining(reset_after)
        local free = subtract(tolerance, reset_after)
        if free[1] < 0 then
            return 0
        end
        -- The division of fractions comes near the number of tokens; whole numbers then find it exactly.
        local tokens = math.min(math.floor((free[1] + free[2] / NANO) * count / period), limit)
        while tokens < limit and not after(time(tokens + 1), free) do
            tokens = tokens + 1
        end
        while after(time(tokens), free) do
            tokens = tokens - 1
        end
        return tokens
    end
    local function reply(limited, retry_after, reset_after)
        return {limited, limit, remaining(reset_after), retry_after, round_up(reset_after)}
    end
    local function store(moment)
        local milliseconds = moment[1] * 1000 + math.ceil(moment[2] / 1000000)
        local text = string.format('%010.0f%09.0f', moment[1], moment[2])
        call('SET', key, text, 'PXAT', string.format('%.0f', milliseconds))
    end

    if quantity < 0 then
        local new = subtract(tat, time(-quantity))
        if after(new, now) then
            store(new)
            return reply(0, -1, subtract(new, now))
        end
        if stored then
            call('DEL', key)
        end
        return reply(0, -1, {0, 0})
    end
    if quantity > limit then
        return reply(1, -1, subtract(tat, now))
    end
    local new = add(tat, time(quantity))
    local allowed_at = subtract(new, tolerance)
    if after(allowed_at, now) then
        return reply(1, round_up(subtract(allowed_at, now)), subtract(tat, now))
    end
    if quantity > 0 then
        store(new)
    end
    return reply(0, -1, subtract(new, now))
end

local done, answer = pcall(throttle, KEYS[1], ARGV)
if not done and type(answer) == 'string' then
    return redis.error_reply(answer)
end
return answer
