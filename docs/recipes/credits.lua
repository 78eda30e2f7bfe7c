#!lua name=credits

-- A plan, then credits: calls use up a quota, such as 1,000 a month, before they use credits that the user has bought.
--     INCRBY {alice}:credits 500
--     FCALL credits_throttle 2 {alice}:plan-2099-12 {alice}:credits 1 1000 4102444800
--     FCALL credits_charge 3 {alice}:plan-2099-12 {alice}:credits {alice}:call-7 1 1000 4102444800
--     FCALL_RO credits_look 2 {alice}:plan-2099-12 {alice}:credits 1 1000 4102444800
-- Keys: the tokens used in the period, the credits and, for credits_charge, the charge's id. Arguments: the quantity,
-- the quota, and the end of the period in seconds since 1970. All tokens come from the plan first. credits_throttle
-- takes all tokens or none. credits_charge always takes them, even if the credits fall below zero. A negative quantity
-- gives tokens back, to the credits first. The functions remember an id for a day, and charge it only once.
-- The reply has four parts: 0 if allowed, 1 if limited or in debt, or 2 if this charge was already made; the plan's
-- five integers, as in calendar_throttle; the credits that are left; and the credits that this call or charge took.
-- The first key holds two numbers, the tokens taken from the plan and from the credits. It expires with the period.
-- Permissions: +fcall +fcall_ro +get +set +del +decrby +expiretime +time

local MOST = 999999999999999

local function fail(message)
    error({err = message})
end

local function whole(name, text, least, most)
    -- Refuse -0, as CL.THROTTLE does.
    local value = text:match('^%-?%d+$') and not text:match('^%-0+$') and tonumber(text)
    if not value or value < least or value > most then
        fail(string.format('ERR %s must be a whole number from %.0f to %.0f', name, least, most))
    end
    return value
end

-- Formats a number as an argument of a command: Redis 7.2 would send 1800000000 as 1.8e+9.
local function text(number)
    return string.format('%.0f', number)
end

local function decide(keys, args, command)
    local takes, charges = command ~= 'look', command == 'charge'
    local id = keys[3]
    if #keys ~= (charges and 3 or 2) or #args ~= 3 or keys[1] == keys[2] or id == keys[1] or id == keys[2] then
        fail('ERR wrong number of arguments, or the same key twice')
    end
    local clock = redis.call('TIME')
    local now = clock[1] + clock[2] / 1000000
    local quantity = whole('quantity', args[1], takes and -MOST or 0, MOST)
    local quota, ends = whole('quota', args[2], 0, MOST), whole('end', args[3], 0, 99999999999)
    -- Compare the times, because a key still exists in the millisecond in which it expires.
    local expires = redis.call('EXPIRETIME', keys[1])
    local used = expires > now and redis.call('GET', keys[1]) or expires == -1 and '' or '0 0'
    local plan, spent = used:match('^(%d+) (%d+)$')
    local exists = redis.call('GET', keys[2])
    local credits = tonumber((exists or '0'):match('^%-?%d+$'))
    if not plan or not credits or math.abs(credits) > MOST then
        fail('ERR the key holds no plan, or no credits')
    end
    if takes and not (redis.acl_check_cmd('SET', keys[1], '0') and redis.acl_check_cmd('DEL', keys[1])
        and redis.acl_check_cmd('DECRBY', keys[2], '0') and (not id or redis.acl_check_cmd('SET', id, '0'))) then
        -- Check first: without these permissions, the call would fail halfway, after its first change.
        fail('NOPERM this function needs the permissions to call SET, DEL and DECRBY')
    end
    local charged = id and redis.call('GET', id)
    local before, taken = (charged or ''):match('^(%S+) (%S+)$')
    if charged and before ~= args[1] then
        fail('ERR this id was charged with a different quantity')
    elseif charged then
        quantity, takes = 0, false
    end
    plan, spent = tonumber(plan), tonumber(spent)
    -- Keep the later end, so that users who change their time zone cannot shorten the month.
    ends = math.max(ends, expires)
    if quantity >= 0 and ends <= now and not charged then
        fail('ERR the period has ended')
    end

    local left = math.max(quota - plan, 0)
    -- The tokens that the call takes from the plan (`own`) and from the credits (`bought`). Negative numbers are
    -- refunds.
    local own, bought
    if quantity >= 0 then
        own = math.min(quantity, left)
        bought = quantity - own
    else
        bought = -math.min(-quantity, spent)
        own = -math.min(-quantity + bought, plan)
    end
    local limited = bought > math.max(credits, 0)
    local can_pass = limited and (charges and quota > 0 or quantity <= quota + credits)
    local done = takes and (charges or not limited)
    if done and (spent + bought > MOST or credits - bought < -MOST) then
        fail('ERR the debt would have more than 15 digits')
    elseif done and own + bought ~= 0 then
        plan, spent = plan + own, spent + bought
        -- Do not refund credits that have expired.
        if bought > 0 or bought < 0 and exists then
            credits = redis.call('DECRBY', keys[2], text(bought))
        end
        if plan + spent > 0 then
            redis.call('SET', keys[1], text(plan) .. ' ' .. text(spent), 'EXAT', text(ends))
        else
            redis.call('DEL', keys[1])
        end
    end
    if done and charges then
        redis.call('SET', id, args[1] .. ' ' .. text(bought), 'EX', '86400')
    end
    local rest = math.max(math.ceil(ends - now), 0)
    local row = {limited and 1 or 0, quota, math.max(quota - plan, 0), can_pass and rest or -1, plan > 0 and rest or 0}
    return {charged and 2 or row[1], row, credits, tonumber(taken) or done and bought or 0}
end

redis.register_function('credits_throttle', function(keys, args) return decide(keys, args, 'throttle') end)
redis.register_function('credits_charge', function(keys, args) return decide(keys, args, 'charge') end)
redis.register_function{
    function_name = 'credits_look',
    callback = function(keys, args) return decide(keys, args, 'look') end,
    flags = {'no-writes'},
}
