#!lua name=reservation

-- Reservations: functions that limit calls whose cost is known only afterwards. budgets.md describes the keys,
-- arguments and replies. The first key belongs to the call. It holds the arguments of `reserve` and, after `settle`, a
-- receipt, until the key expires. The second key, the holds, is a sorted set of the calls in flight. A call's score is
-- the end of its lease, in milliseconds since 1970. A function that returns an error changes nothing.
-- Permissions: +fcall +fcall_ro +time +get +set +pexpire +zadd +zcard +zcount +zrange +zrem +zremrangebyscore +zscore
-- +cl.charge +cl.mthrottle +cl.throttle

local function fail(message)
    error({err = 'ERR ' .. message})
end

-- Fails unless the text is a whole number of at most this many digits. Lua's numbers are exact with up to 15 digits.
local function check(name, text, pattern, digits, limiter)
    if #text > digits or not text:find(pattern) then
        local place = limiter and ' (limiter ' .. limiter .. ')' or ''
        fail(name .. ' must be a whole number of at most ' .. digits .. ' digits' .. place)
    end
end

local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function is_held(holds, id)
    return tonumber(redis.call('ZSCORE', holds, id) or 0) > clock()
end

local function hold(holds, id, lease, has_ended)
    if has_ended then
        redis.call('ZREMRANGEBYSCORE', holds, '-inf', clock())
    end
    redis.call('ZADD', holds, string.format('%d', clock() + lease), id)
    -- Keep the holds longer than the longest lease, which has 8 digits.
    redis.call('PEXPIRE', holds, '100000000')
end

-- Returns the number of seconds until a slot is free. The result is 0 or less if a lease has ended, and nil if there
-- are fewer holds than slots.
local function wait_for_slot(holds, slots)
    if redis.call('ZCARD', holds) >= tonumber(slots) then
        local last = redis.call('ZRANGE', holds, '-' .. slots, '-' .. slots, 'WITHSCORES')
        return math.ceil((last[2] - clock()) / 1000)
    end
end

-- Encodes the keys after the first one as an unambiguous string. A single key without a space is its own encoding.
local function names_of(keys, holds)
    local names = keys[2]
    if #keys > 2 or names:find(' ', 1, true) then
        names = ' ' .. cmsgpack.pack(unpack(keys, 2))
    end
    return names .. (holds and ' in ' or ' of ')
end

-- Returns the number of the limiter with the longest wait, and that wait in seconds: -1 if the call can never pass.
local function longest_wait(rows)
    local limiter, longest = 0, 0
    for number = 2, #rows do
        local limited, wait = rows[number][1] == 1, rows[number][4]
        if limited and longest >= 0 and (wait < 0 or wait > longest) then
            limiter, longest = number - 1, wait
        end
    end
    return {limiter, longest}
end

local function reserve(keys, args)
    -- The number of arguments before those of the limiters: 2 if slots are limited, otherwise 1.
    local before = #args % 4
    local limiters = #keys - before
    if before < 1 or before > 2 or #keys < 2 or #args ~= before + 4 * limiters then
        fail('wrong number of arguments')
    end
    local id, lease, holds = keys[1], args[1], before == 2 and keys[2]
    check('lease', lease, '^[1-9]%d*$', 8)
    if holds then
        check('slots', args[2], '^[1-9]%d*$', 15)
        if id == holds then
            fail('the call must have its own key')
        end
    end
    local words = names_of(keys, holds) .. table.concat(args, ' ', before + 1)
    for number = 1, limiters do
        local limiter, estimate = keys[before + number], args[before + 5 * number - 1]
        -- Refuse a negative estimate, which would give tokens back. CL.THROTTLE refuses what is not a number.
        if limiter == id or limiter == holds or estimate:byte() == 45 or #estimate > 15 then
            fail('limiter ' .. number .. ' must have its own key, and an estimate of 0 or more with at most 15 digits')
        end
        -- CL.MTHROTTLE expects each limiter's key in front of the limiter's numbers.
        table.insert(args, before + 5 * number - 4, limiter)
    end
    local record = redis.call('GET', id)
    if record == words then
        return (not holds or is_held(holds, id)) and 0 or fail('the lease of this call has ended')
    elseif record then
        fail(record == 'settled' and 'this call is settled' or 'this call was reserved with different arguments')
    end
    local wait = holds and wait_for_slot(holds, args[2])
    if wait and wait > 0 then
        return {0, wait}
    end
    -- For a single limiter, call CL.THROTTLE, which is cheaper: reserve and settle together cost 5% less.
    local command = limiters > 1 and 'CL.MTHROTTLE' or 'CL.THROTTLE'
    local answer = limiters > 0 and redis.call(command, unpack(args, before + 1)) or {0}
    if answer[1] == 1 then
        return longest_wait(limiters > 1 and answer or {1, answer})
    end
    local held, failure = true, nil
    if holds then
        held, failure = pcall(hold, holds, id, lease, wait)
    end
    -- Remember the call for ten times the length of its lease.
    local stored = held and redis.pcall('SET', id, words, 'PX', lease .. '0') or {err = failure}
    if not stored.err then
        return 0
    end
    -- The call has failed because the user lacks a permission, so undo the changes.
    if holds then
        redis.pcall('ZREM', holds, id)
    end
    for place = before + 5, #args, 5 do
        args[place] = string.format('%d', 0 - args[place])
    end
    if limiters > 0 then
        redis.call(command, unpack(args, before + 1))
    end
    return stored
end

local function renew(keys, args)
    if #keys ~= 2 or #args ~= 1 then
        fail('wrong number of arguments')
    end
    local id, holds, lease = keys[1], keys[2], args[1]
    check('lease', lease, '^[1-9]%d*$', 8)
    if not is_held(holds, id) then
        return 0
    elseif not redis.acl_check_cmd('ZADD', holds, '0', id) then
        error({err = 'NOPERM renew needs the permission to call ZADD'})
    end
    redis.call('PEXPIRE', id, lease .. '0')
    hold(holds, id, lease)
    return 1
end

-- Charges limiter `number` and all later ones for the use beyond their estimates, and then refunds what was not used.
-- The limiter's words begin at position `at`. Returns an error if a limiter refuses its charge, and then charges
-- nothing.
local function charge(keys, words, at, used, number)
    local burst, count, period, estimate, rest = words:match('^(%S+) (%S+) (%S+) (%S+) ?()', at)
    local key, more = keys[#keys - #used + number], used[number] - estimate
    local function call(quantity)
        local answer = redis.pcall('CL.CHARGE', key, burst, count, period, string.format('%d', quantity))
        return answer.err and answer
    end
    -- A refund that fills the limiter cannot be undone, so refund last. Before that, a call with quantity 0 checks for
    -- errors.
    local failure = (more > 0 or more < 0 and #used > 1) and call(math.max(more, 0))
    if not failure and number < #used then
        failure = charge(keys, words, rest, used, number + 1)
        if failure and more > 0 then
            call(-more)
        end
    end
    return failure or more < 0 and call(more)
end

local function settle(keys, used)
    local id, before = keys[1], #keys - #used
    if before < 1 or before > 2 or #keys < 2 then
        fail('wrong number of arguments')
    end
    for number = 1, #used do
        check('the used amount', used[number], '^%d+$', 15, number)
    end
    if before == 2 and not redis.acl_check_cmd('ZREM', keys[2], id) then
        error({err = 'NOPERM settle needs the permission to call ZREM'})
    end
    local names = names_of(keys, before == 2)
    local words = redis.call('SET', id, 'settled', 'KEEPTTL', 'GET')
    if words == 'settled' then
        return 2
    elseif not words then
        -- Store a receipt, which makes the reservation fail if it arrives only now, after its caller has given up.
        redis.call('SET', id, 'settled', 'PX', '60000')
        return 0
    end
    local failure = {err = 'ERR this call was reserved with different arguments'}
    if words:sub(1, #names) == names then
        failure = used[1] and charge(keys, words, #names + 1, used, 1)
    end
    if failure then
        redis.call('SET', id, words, 'KEEPTTL')
        return failure
    end
    if before == 2 then
        -- Ignore errors here: the call has been settled, whatever has happened to its hold.
        redis.pcall('ZREM', keys[2], id)
    end
    return 1
end

redis.register_function('reserve', reserve)
-- allow-oom lets calls renew their leases, free their slots and give back tokens while the server is at maxmemory.
redis.register_function{function_name = 'renew', callback = renew, flags = {'allow-oom'}}
redis.register_function{function_name = 'settle', callback = settle, flags = {'allow-oom'}}
redis.register_function{function_name = 'reservations', flags = {'no-writes'}, callback = function(keys)
    if #keys ~= 1 then
        fail('wrong number of arguments')
    end
    return redis.call('ZCOUNT', keys[1], '(' .. clock(), '+inf')
end}
