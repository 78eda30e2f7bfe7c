#!lua name=reservation

-- Reservations: a call holds a place and takes an estimate from its limiters; when it ends, the difference to what it
-- has used is charged, once. Every call may be repeated. FUNCTION LOAD the file, and then
--     FCALL reserve 3 {a}:calls {a}:requests {a}:tokens call-7 30000 16 500 keep 59 60 60 1 19999 20000 60 amount
--     FCALL renew   1 {a}:calls call-7 30000
--     FCALL settle  3 {a}:calls {a}:requests {a}:tokens call-7 430
--     FCALL_RO reservations 1 {a}:calls
-- Keys: the holds, and up to 1,000 limiters. Arguments of reserve: the call's id; its lease in milliseconds; the places
-- (0: no bound); the amount; what the lease's end does with the amount, keep or give_back; then, for each limiter,
-- max_burst, count and period in seconds, and what it takes: a number, or the word amount.
--
-- The holds are a sorted set, so that one key finds a call by its id, and the calls by time. An entry has two members
-- with one score: its name, and a record that begins with this name. There are three kinds of entries:
--     id:call-7, score above 0        a call that is held; the score is the end of its lease
--     id:call-7, score below 0        its receipt; the score is the moment at which the receipt goes, negated
--     limiter:{a}:tokens              amounts to give back at the next call that has the limiter among its keys
-- A moment is in microseconds since 1970, which a score, a double, holds exactly.

-- A receipt is kept for this many leases; that of a call that has not reserved, for this many microseconds.
local LEASES, MINUTE = 10, 60000000
-- A script can pass on some thousands of values: five for each limiter. A call reads SWEPT members whose time is over,
-- two for each entry, which takes some milliseconds; the next calls read the others.
local LIMITERS, SWEPT = 1000, 1000
-- The sums and differences of such numbers are exact in a script, up to EXACT. FAR is a moment in the year 2255.
local MOST, LONGEST, FAR, EXACT = 999999999999999, 99999999999, 9000000000000000, 9007199254740991
local HELD, ENDED, SETTLED, UNKNOWN = 0, 1, 2, 3

local function text(number)
    return string.format('%.0f', number)
end

local function fail(message)
    error({err = 'ERR ' .. message})
end

-- Calls a command. Its error becomes the function's, with the same text on every server.
local function call(...)
    local answer = redis.pcall(...)
    if type(answer) == 'table' and answer.err then
        error(answer)
    end
    return answer
end

local function whole(name, argument, least, most)
    local number = (argument == '0' or argument:match('^[1-9]%d*$')) and tonumber(argument)
    if not number or number < least or number > most then
        fail(string.format('%s must be a whole number from %.0f to %.0f', name, least, most))
    end
    return number
end

local function clock()
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
end

-- Fails unless the user may make every write to the holds: a call that failed half-way would have taken tokens without
-- a record of them.
local function check(keys)
    local seen = {}
    for _, key in ipairs(keys) do
        if seen[key] then
            fail('a key is there twice')
        end
        seen[key] = true
    end
    local may, key = redis.acl_check_cmd, keys[1]
    if not (may('ZADD', key, '1', '') and may('ZREM', key, '') and may('PEXPIREAT', key, '1')
        and may('PEXPIRETIME', key)) then
        error({err = 'NOPERM this user lacks ZADD, ZREM, PEXPIREAT or PEXPIRETIME on the holds'})
    end
    return seen
end

local function head(name)
    return '=' .. #name .. ':' .. name
end

-- Returns the record of the entry with this name and score, its score as a number, and its member.
local function read(key, name, score)
    local head = head(name)
    for _, member in ipairs(call('ZRANGE', key, score, score, 'BYSCORE')) do
        if member:sub(1, #head) == head then
            return cmsgpack.unpack(member:sub(#head + 1)), tonumber(score), member
        end
    end
    fail('the key holds no reservations')
end

-- Returns what `read` does, or nil if there is no such entry.
local function find(key, name)
    local score = call('ZSCORE', key, name)
    if score then
        return read(key, name, score)
    end
end

-- Writes an entry. `old` is its member so far. The key lives at least until the moment `last`.
local function put(key, name, record, score, last, old)
    local member = head(name) .. cmsgpack.pack(record)
    call('ZADD', key, text(score), name, text(score), member)
    if old and old ~= member then
        call('ZREM', key, old)
    end
    last = math.ceil(last / 1000)
    if last > call('PEXPIRETIME', key) then
        call('PEXPIREAT', key, text(last))
    end
end

-- Returns the limiters that took the amount of a call: lists of key, max_burst, count and period.
local function shares(record)
    local shares = {}
    for at = 1, #record.groups, 5 do
        if record.groups[at + 4] == 'amount' then
            table.insert(shares, {unpack(record.groups, at, at + 3)})
        end
    end
    return shares
end

-- Returns the moment at which all tokens of a limiter that was emptied at `moment` are back.
local function full(share, moment)
    return math.min(moment + (share[2] + 1) * share[4] / share[3] * 1000000, FAR)
end

local function receipt_ends(record, moment)
    return moment + LEASES * record.lease * 1000
end

-- Returns the limiters that get the amount of a call back when its lease ends.
local function given_back(record)
    return record.gives_back and record.amount > 0 and shares(record) or {}
end

-- Returns the moment until which the amount of a lease that ends at `ends` is given back to these limiters: its receipt
-- is gone, so that no settlement can come, and they are full in any case. The key of the holds lives at least as long.
local function last(record, ends, shares)
    local last = receipt_ends(record, ends)
    for _, share in ipairs(shares) do
        last = math.max(last, full(share, ends))
    end
    return last
end

-- Returns the record of a call, its member and its state; or nil if there is none, or its receipt is gone.
local function find_call(key, id, now)
    local record, score, member = find(key, 'id:' .. id)
    if record and score > now then
        return record, member, HELD
    end
    if record and now < (score > 0 and receipt_ends(record, score) or -score) then
        return record, member, math.max(record.state, ENDED)
    end
end

local function remove(due, name, member)
    table.insert(due.gone, name)
    table.insert(due.gone, member)
end

-- Returns what a limiter is owed, to be taken out of the holds: max_burst, count, period and amount of each quota, and
-- `last`, the moment until which all of it is given back.
local function owed_to(key, due, limiter, now)
    if not due.owed[limiter] then
        local name = 'limiter:' .. limiter
        local amounts, score, member = find(key, name)
        if amounts then
            remove(due, name, member)
        end
        local is_due = amounts and -score > now
        due.owed[limiter] = is_due and {amounts = amounts, last = -score} or {amounts = {}, last = 0}
    end
    return due.owed[limiter]
end

-- Adds the amount of a lease that ended at `ends` to what a limiter is owed.
local function owe(key, due, share, record, ends, now)
    local last = last(record, ends, {share})
    if last <= now then
        return
    end
    local owed = owed_to(key, due, share[1], now)
    local amounts, at = owed.amounts, 1
    while amounts[at] and (amounts[at] ~= share[2] or amounts[at + 1] ~= share[3] or amounts[at + 2] ~= share[4]
        or amounts[at + 3] > EXACT - record.amount) do
        at = at + 4
    end
    amounts[at], amounts[at + 1], amounts[at + 2] = share[2], share[3], share[4]
    amounts[at + 3] = (amounts[at + 3] or 0) + record.amount
    owed.last = math.max(owed.last, last)
end

-- Returns the changes that are due: leases have ended, receipts are to go, amounts are to be given back to the limiters
-- among the keys. If there are many, these are the entry of the call itself, `own`, and the first of the others. Fails,
-- before anything is written, if an amount cannot be given back.
local function find_due(keys, now, own)
    local key, due = keys[1], {receipts = {}, refunds = {}, owed = {}, gone = {}}
    local function see(name, record, ends, member)
        if ends < 0 or receipt_ends(record, ends) <= now then
            remove(due, name, member)
        else
            table.insert(due.receipts, {name, record, ends, member})
        end
        for _, share in ipairs(ends > 0 and given_back(record) or {}) do
            owe(key, due, share, record, ends, now)
        end
    end
    local members = call('ZRANGE', key, text(-now), text(now), 'BYSCORE', 'LIMIT', 0, SWEPT, 'WITHSCORES')
    local are_more = #members == 2 * SWEPT
    for at = 1, #members, 2 do
        local member, ends = members[at], tonumber(members[at + 1])
        local length, start = member:match('^=(%d+):()')
        local name = length and member:sub(start, start + length - 1)
        if not name and not member:match('^id:') and not member:match('^limiter:') then
            fail('the key holds no reservations')
        elseif name and not (are_more and name == own) then
            see(name, ends > 0 and cmsgpack.unpack(member:sub(start + length)), ends, member)
        end
    end
    if are_more then
        local record, ends, member = find(key, own)
        if record and math.abs(ends) <= now then
            see(own, record, ends, member)
        end
    end
    for number = 2, #keys do
        local limiter = keys[number]
        local amounts = owed_to(key, due, limiter, now).amounts
        for at = 1, #amounts, 4 do
            call('CL.CHARGE', limiter, amounts[at], amounts[at + 1], amounts[at + 2], 0)
            table.insert(due.refunds, {limiter, unpack(amounts, at, at + 3)})
        end
        due.owed[limiter] = nil
    end
    due.any = #members > 0 or #due.refunds > 0
    return due
end

local function make(key, due)
    for _, refund in ipairs(due.refunds) do
        call('CL.CHARGE', refund[1], refund[2], refund[3], refund[4], '-' .. text(refund[5]))
    end
    for _, receipt in ipairs(due.receipts) do
        local name, record, ends, member = unpack(receipt)
        record.state = ENDED
        put(key, name, record, -receipt_ends(record, ends), receipt_ends(record, ends), member)
    end
    for at = 1, #due.gone, 1000 do
        call('ZREM', key, unpack(due.gone, at, math.min(at + 999, #due.gone)))
    end
    -- Write these after the removals: the same names held what the limiters were owed so far.
    for limiter, owed in pairs(due.owed) do
        put(key, 'limiter:' .. limiter, owed.amounts, -owed.last, owed.last)
    end
end

local function count(key, now)
    return call('ZCOUNT', key, '(' .. text(now), '+inf') / 2
end

local function reserve(keys, args)
    if #keys < 1 or #args ~= 5 + 4 * (#keys - 1) then
        fail('wrong number of arguments')
    elseif #keys > 1 + LIMITERS then
        fail('too many limiters')
    end
    local id, ending = args[1], args[5]
    local lease, places = whole('lease', args[2], 1, LONGEST), whole('places', args[3], 0, MOST)
    local record = {state = HELD, lease = lease, amount = whole('amount', args[4], 0, MOST), groups = {}}
    if ending ~= 'keep' and ending ~= 'give_back' then
        fail("the lease's end must be keep or give_back")
    end
    record.gives_back = ending == 'give_back'
    local words = {}
    for number = 2, #keys do
        local at = 4 * number - 2
        local takes = args[at + 3]
        if takes ~= 'amount' then
            whole('a number that a limiter takes', takes, 0, MOST)
        end
        for _, word in ipairs({keys[number], args[at], args[at + 1], args[at + 2]}) do
            table.insert(words, word)
            table.insert(record.groups, word)
        end
        table.insert(words, takes == 'amount' and args[4] or takes)
        table.insert(record.groups, takes)
    end

    local key, now = keys[1], clock()
    check(keys)
    local known, member, state = find_call(key, id, now)
    if known and state ~= HELD then
        fail(state == ENDED and 'id: the lease of this call has ended' or 'id: this call is settled')
    elseif known and (known.amount ~= record.amount or known.gives_back ~= record.gives_back
        or cmsgpack.pack(known.groups) ~= cmsgpack.pack(record.groups)) then
        fail('id: this call has reserved with other numbers')
    end
    local due = find_due(keys, now, 'id:' .. id)
    local held = places > 0 and count(key, now) or 0
    local limited = not known and places > 0 and held >= places
    -- Asks the limiters for what the call takes, or for this quantity of each.
    local function decide(quantity)
        local words, rows = {unpack(words)}, {limited and 1 or 0}
        for at = 1, #words, 5 do
            words[at + 4] = quantity or words[at + 4]
            rows[#rows + 1] = limited and call('CL.LOOK', unpack(words, at, at + 4)) or nil
        end
        return (limited or #words == 0) and rows or call('CL.MTHROTTLE', unpack(words))
    end
    if due.any then
        -- A call for nothing finds bad numbers, and rights that lack, before anything is written.
        decide(0)
        make(key, due)
    end
    local rows = decide(known and 0)
    if known then
        rows[1] = 0
        for number = 2, #rows do
            rows[number][1], rows[number][4] = 0, -1
        end
    end
    local wait = -1
    if limited then
        local first = call('ZRANGE', key, '(' .. text(now), '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
        wait = math.ceil((first[2] - now) / 1000)
    elseif not known and rows[1] == 0 then
        local ends = now + lease * 1000
        put(key, 'id:' .. id, record, ends, last(record, ends, given_back(record)))
        held = held + 1
    end
    return {rows[1], places > 0 and math.max(places - held, 0) or -1, wait, unpack(rows, 2)}
end

local function renew(keys, args)
    if #keys ~= 1 or #args ~= 2 then
        fail('wrong number of arguments')
    end
    local key, lease, now = keys[1], whole('lease', args[2], 1, LONGEST), clock()
    check(keys)
    local record, member, state = find_call(key, args[1], now)
    if state ~= HELD then
        return 0
    end
    local ends = now + lease * 1000
    record.lease = lease
    put(key, 'id:' .. args[1], record, ends, last(record, ends, given_back(record)), member)
    return 1
end

local function settle(keys, args)
    if #keys < 1 or #args ~= 2 then
        fail('wrong number of arguments')
    end
    local key, name, used = keys[1], 'id:' .. args[1], whole('used', args[2], 0, MOST)
    local now, declared = clock(), check(keys)
    local record, member, state = find_call(key, args[1], now)
    if not record or state == UNKNOWN then
        make(key, find_due(keys, now, name))
        -- If the reservation is still on its way, nobody waits for it any more: the receipt refuses it.
        record = {state = UNKNOWN, lease = 0, amount = 0, groups = {}}
        put(key, name, record, -(now + MINUTE), now + MINUTE, member)
        return {0}
    end
    local charges = shares(record)
    for _, charge in ipairs(charges) do
        if not declared[charge[1]] then
            fail('the keys lack a limiter that took the amount')
        end
    end
    local due = find_due(keys, now, name)
    local function charge(share, quantity)
        return redis.pcall('CL.CHARGE', share[1], share[2], share[3], share[4], text(quantity))
    end
    local function state_of_all()
        local rows = {}
        for number, share in ipairs(charges) do
            rows[number] = charge(share, 0)
            if rows[number].err then
                error(rows[number])
            end
        end
        return rows
    end
    -- A charge of 0 finds whatever would make a later one fail, but a debt beyond the year 2262.
    local rows = state_of_all()
    if state ~= SETTLED then
        local difference = used - (state == ENDED and record.gives_back and 0 or record.amount)
        for number, share in ipairs(charges) do
            rows[number] = charge(share, difference)
            if rows[number].err then
                for earlier = 1, number - 1 do
                    charge(charges[earlier], -difference)
                end
                error(rows[number])
            end
        end
    end
    if due.any then
        make(key, due)
        member = select(3, find(key, name))
    end
    if #due.refunds > 0 then
        rows = state_of_all()
    end
    if state ~= SETTLED then
        record.state = SETTLED
        local ends = receipt_ends(record, now)
        put(key, name, record, -ends, ends, member)
    end
    return {state == SETTLED and 2 or 1, unpack(rows)}
end

local function reservations(keys, args)
    if #keys ~= 1 or #args > 0 then
        fail('wrong number of arguments')
    end
    return count(keys[1], clock())
end

-- Returns the function with its errors as replies: raised, they would end in the script's name and line.
local function replying(act)
    return function(keys, args)
        local done, answer = pcall(act, keys, args)
        return done and answer or redis.error_reply(answer)
    end
end

redis.register_function('reserve', replying(reserve))
-- allow-oom: calls that end while the server is at maxmemory must free their places and give back their tokens.
redis.register_function{function_name = 'renew', callback = replying(renew), flags = {'allow-oom'}}
redis.register_function{function_name = 'settle', callback = replying(settle), flags = {'allow-oom'}}
redis.register_function{function_name = 'reservations', callback = replying(reservations), flags = {'no-writes'}}
