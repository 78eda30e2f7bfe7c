#!lua name=policies

-- Limits by name. FUNCTION LOAD REPLACE of this file changes them for all callers at once:
--     FCALL throttle 1 user123 gold [quantity]

-- max_burst, count, period in seconds, and the same of each further quota. Add a quota at the end: the order counts.
local policies = {
    free = {9, 10, 60},
    gold = {99, 100, 60, 9999, 10000, 86400},
}

local function throttle(keys, args)
    local policy = policies[args[1]]
    if not policy then
        return redis.error_reply('ERR no policy of that name')
    end
    return redis.call('CL.THROTTLE', keys[1], policy[1], policy[2], policy[3], args[2] or 1, unpack(policy, 4))
end

redis.register_function('throttle', throttle)
