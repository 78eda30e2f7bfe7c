-- CL.THROTTLE as a script, for servers that cannot load modules. The arguments, replies and stored state are the same
-- as the module's.
--     redis-cli --eval gcra.lua user123 , 15 30 60 1
--     redis-cli --eval gcra.lua user123 , 9 10 1 1 499 500 86400
-- KEYS: the limiter. ARGV: max_burst, count, and the period in seconds; the quantity (1 by default); then max_burst,
-- count and period of each further quota.
-- Permissions: +eval +time +get +set +del
--
-- Lua's numbers are doubles, which are exact for whole numbers up to 2^53, but nanoseconds since 1970 are larger. So
-- this script represents each time as a pair: whole seconds and the remaining nanoseconds. If a result would not be
-- exact, the call fails. The server's TIME is in microseconds, so `now` is always a whole number of microseconds.

local NANO = 1000000000
local EXACT = 2 ^ 53
local ZERO, FOR_EVER = {0, 0}, {math.huge, 0}

local function fail(number, text)
    error({err = 'ERR ' .. text .. (number > 1 and ' (quota ' .. number .. ')' or '')})
end

local function integer(number, name, text, least)
    if text ~= '0' and not (text:match('^%-?[1-9]%d*$') and math.abs(tonumber(text)) < EXACT) then
        fail(number, name .. ' is not an integer or out of range')
    elseif tonumber(text) < least then
        fail(number, name .. ' must be ' .. least .. ' or more')
    end
    return tonumber(text)
end

-- Calls a command. If the command fails, the script fails with the same error, in the same words on every server.
local function call(...)
    local answer = redis.pcall(...)
    if type(answer) == 'table' and answer.err then
        -- Remove what Redis 6.2 puts in front of an error code such as READONLY: the script's name and line.
        answer.err = answer.err:gsub('^@user_script: %d+: %-', '')
        error(answer)
    end
    return answer
end

-- Returns the quotient and the remainder of a / b. Both are exact if 0 <= a < 2^53.
local function divide(a, b)
    local rest = math.fmod(a, b)
    return (a - rest) / b, rest
end

local function add(a, b)
    local carry, nanos = divide(a[2] + b[2], NANO)
    return {a[1] + b[1] + carry, nanos}
end

-- Returns a - b. A negative difference has negative seconds, but its nanoseconds are 0 or more.
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

-- Returns the time in which this number of tokens comes back, rounded down to a nanosecond.
local function time(quota, tokens)
    local seconds, rest = divide(tokens * quota.period, quota.count)
    return {seconds, (divide(rest * NANO, quota.count))}
end

-- Reads a quota from three arguments, the first of which is ARGV[place].
local function parse(number, place)
    return {
        number = number,
        limit = integer(number, 'max_burst', ARGV[place], -1) + 1,
        count = integer(number, 'count', ARGV[place + 1], 1),
        period = integer(number, 'period', ARGV[place + 2], 1),
    }
end

local function prepare(quota, quantity, now)
    -- Limit the count, too: `time` multiplies a remainder below the count by NANO, which must be exact.
    if quota.count > 9000000 or math.max(quota.limit, -quantity) * quota.period >= EXACT then
        fail(quota.number, 'these numbers are too large for a script to be exact')
    end
    quota.tolerance = time(quota, quota.limit)
    if after(add(now, quota.tolerance), {9223372036, 854775807}) then
        fail(quota.number, 'max_burst, count and period: the tokens would not be back before the year 2262')
    end
end

-- Returns the times that the key holds, one for each quota of an earlier call, or none if the key does not exist.
local function read(key)
    local moments, text = {}, call('GET', key)
    if text and (#text % 19 > 0 or #text < 19 or #text > 152 or not text:match('^%d+$')) then
        fail(1, 'the key holds no rate limiter state')
    end
    for place = 1, text and #text or 0, 19 do
        if text:sub(place, place + 18) > '9223372036854775807' then
            fail(1, 'the key holds no rate limiter state')
        end
        table.insert(moments, {tonumber(text:sub(place, place + 9)), tonumber(text:sub(place + 10, place + 18))})
    end
    return moments
end

local function write(key, moments, last)
    local texts = {}
    for number, moment in ipairs(moments) do
        texts[number] = string.format('%010.0f%09.0f', moment[1], moment[2])
    end
    local milliseconds = last[1] * 1000 + math.ceil(last[2] / 1000000)
    call('SET', key, table.concat(texts), 'PXAT', string.format('%.0f', milliseconds))
end

-- Returns the number of tokens left in a quota whose tokens will all be back after the time `full_after`.
local function remaining(quota, full_after)
    local free = subtract(quota.tolerance, full_after)
    if free[1] < 0 then
        return 0
    end
    -- Estimate the number of tokens by floating-point division, and then correct it by exact arithmetic.
    local tokens = math.min(math.floor((free[1] + free[2] / NANO) * quota.count / quota.period), quota.limit)
    while tokens < quota.limit and not after(time(quota, tokens + 1), free) do
        tokens = tokens + 1
    end
    while after(time(quota, tokens), free) do
        tokens = tokens - 1
    end
    return tokens
end

local function throttle(key)
    local further = math.max(#ARGV - 4, 0) / 3
    if #KEYS ~= 1 or #ARGV < 3 or further % 1 > 0 then
        error({err = "ERR wrong number of arguments for 'cl.throttle' command"})
    elseif further > 7 then
        fail(1, 'a limiter has at most 8 quotas')
    end
    local clock = call('TIME')
    local now = {tonumber(clock[1]), clock[2] * 1000}
    local quotas = {parse(1, 1)}
    local quantity = integer(1, 'quantity', ARGV[4] or '1', -EXACT)
    prepare(quotas[1], quantity, now)
    for number = 2, 1 + further do
        quotas[number] = parse(number, 3 * number - 1)
        prepare(quotas[number], quantity, now)
    end

    local moments = read(key)
    local function reply(limited, quota, left, wait, full_after)
        return {limited, quota.limit, left, wait, round_up(full_after), further > 0 and quota.number or nil}
    end
    -- The quota with the longest wait, and that wait.
    local limiting, longest = nil, ZERO
    for number, quota in ipairs(quotas) do
        local moment = moments[number] or now
        quota.full_after = after(moment, now) and subtract(moment, now) or ZERO
        if quantity > quota.limit then
            quota.wait = FOR_EVER
        elseif quantity >= 0 then
            quota.then_full_after = add(quota.full_after, time(quota, quantity))
            quota.wait = subtract(quota.then_full_after, quota.tolerance)
        else
            local rest = subtract(quota.full_after, time(quota, -quantity))
            quota.then_full_after, quota.wait = after(rest, ZERO) and rest or ZERO, ZERO
        end
        if after(quota.wait, longest) then
            limiting, longest = quota, quota.wait
        end
    end
    if limiting then
        local wait = longest == FOR_EVER and -1 or round_up(longest)
        return reply(1, limiting, remaining(limiting, limiting.full_after), wait, limiting.full_after)
    end

    local deciding, fewest, moved, last = nil, math.huge, false, ZERO
    for number, quota in ipairs(quotas) do
        local left = remaining(quota, quota.then_full_after)
        if left < fewest then
            deciding, fewest = quota, left
        end
        -- A refund does not change a time that has passed: that quota is already full.
        if quantity > 0 or after(quota.full_after, ZERO) then
            moments[number], moved = add(now, quota.then_full_after), true
        else
            moments[number] = moments[number] or now
        end
    end
    for _, moment in ipairs(moments) do
        last = after(moment, last) and moment or last
    end
    if quantity < 0 and not after(last, now) then
        call('DEL', key)
    elseif quantity ~= 0 and moved then
        write(key, moments, last)
    end
    return reply(0, deciding, fewest, -1, deciding.then_full_after)
end

local done, answer = pcall(throttle, KEYS[1])
if not done and type(answer) == 'string' then
    return redis.error_reply(answer)
end
return answer
