-- Limits the requests of nginx by redis-cell. nginx.conf shows how; it belongs to the same folder.

local ffi = require "ffi"
local lrucache = require "resty.lrucache"
local found, redis = pcall(require, "resty.redis")      -- OpenResty's
if not found then redis = require "nginx.redis" end     -- Debian's, lua-nginx-redis

ffi.cdef [[ int limits_clock(int, long *) __asm__("clock_gettime"); ]]

-- The server, and the longest time in ms that a call waits for a free connection, for a new one, and for each part of
-- the reply. A name would need a resolver, even "localhost". `nginxes` is how many nginx have the limits, and `origin`
-- the origin whose pages may read a refusal. Set these before the first limit is made.
local limits = { host = "127.0.0.1", port = 6379, timeout = 100, nginxes = 1, origin = "*" }
local Limit = {}

-- The groups of a share, and the keys in each. Without the salt, no caller can choose a group.
local GROUPS, KEYS = 2048, 64
local HEADERS = { "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Quota" }
local REMAINING, EXPOSED = HEADERS[2], table.concat(HEADERS, ", ") .. ", Retry-After"
local SALT = io.open("/dev/urandom"):read(16)

local logged, time = 0, ffi.new("long[2]")

-- Returns the monotonic clock's time in whole microseconds.
local function now()
    ffi.C.limits_clock(1, time)
    return tonumber(time[0]) * 1e6 + math.floor(tonumber(time[1]) / 1e3)
end

local function is_integer(number, least, most)
    return type(number) == "number" and number % 1 == 0 and number >= least and number <= (most or 2 ^ 53 - 1)
end

-- Returns a limit on each caller. A quota is { max_burst, count, period }. A call without an answer is decided by this
-- worker's share of the limit, or refused with { fail = "closed" }. With { remember = 10 }, the worker itself refuses a
-- limited caller until a token is back, for ten seconds at most: a reset or a refund counts only after that.
function limits.new(name, quotas, settings)
    settings = settings or {}
    local fail, remember, timeout = settings.fail or "share", settings.remember or 0, limits.timeout
    assert(is_integer(limits.nginxes, 1, 2 ^ 32) and is_integer(limits.port, 1, 65535) and type(timeout) == "number"
        and timeout >= 1 and timeout < 2 ^ 31, "limits.nginxes, limits.port or limits.timeout is no such number")
    -- A key is "name:caller". With a colon in names, a caller could choose the key of another limit's caller.
    assert(type(name) == "string" and name:find("^[^:]+$"), "a limit's name is a text without a colon")
    assert((fail == "share" or fail == "closed") and is_integer(remember, 0, 2 ^ 32),
        name .. ': fail is "share" or "closed", and remember a time in whole seconds')
    assert(type(quotas) == "table" and #quotas >= 1 and #quotas <= 8, name .. ": there are 1 to 8 quotas")
    local self, processes = { name = name, quotas = {}, words = {}, fail = fail }, limits.nginxes * ngx.worker.count()
    self.host, self.port, self.timeout, self.remember = limits.host, limits.port, timeout, remember
    -- The most refused callers that the worker remembers: the oldest goes.
    self.refused = remember > 0 and lrucache.new(10000)
    -- Milliseconds, if they count: a wait of 100 ms would be remembered as none.
    self.command, self.unit = self.refused and "CL.PTHROTTLE" or "CL.THROTTLE", self.refused and 1 or 1000
    for i, quota in ipairs(quotas) do
        local max_burst, count, period = unpack(quota)
        -- Redis would have an error for each call with other numbers: the share would decide on all of them.
        assert(#quota == 3 and is_integer(max_burst, -1) and is_integer(count, 1) and is_integer(period, 1)
            and count <= period * 1e9 and math.max(max_burst + 1, count) * period <= count * 2 ^ 32,
            ("%s: quota %d is no { max_burst, count, period }"):format(name, i))
        local step = math.ceil(processes * period * 1e6 / count)
        local tokens = max_burst < 0 and 0 or math.max(1, math.floor((max_burst + 1) / processes))
        local keys, moments = ffi.new("double[?]", GROUPS * KEYS), ffi.new("double[?]", GROUPS * KEYS)
        self.quotas[i] = { step = step, burst = tokens * step, keys = keys, moments = moments }
        -- The quantity stands behind the first quota.
        for _, number in ipairs { max_burst, count, period * 1000 / self.unit, i == 1 and 1 or nil } do
            table.insert(self.words, ("%.0f"):format(number))
        end
    end
    -- Each count begins at 0: Prometheus would not see a count that begins with the failures of a first outage.
    for _, result in ipairs { "allowed", "limited", "share", "closed" } do
        ngx.shared.limits:add(('limit="%s",result="%s"'):format(name, result), 0)
    end
    return setmetatable(self, { __index = Limit })
end

-- Prints all counts for Prometheus.
function limits.metrics()
    for _, labels in ipairs(ngx.shared.limits:get_keys(0)) do
        ngx.say("limit_calls_total{", labels, "} ", ngx.shared.limits:get(labels))
    end
end

-- Returns the caller's IPv4 address, or the 2^64 addresses around one of IPv6: a customer has all of them.
function limits.address()
    local bytes = ngx.var.binary_remote_addr
    if #bytes ~= 4 and #bytes ~= 16 then return "unix" end      -- the bytes are "unix:"
    -- A listener for both has an IPv4 address in 16 bytes. A NAT64 gateway puts one into 64:ff9b::/96.
    local prefix = bytes:sub(1, -5)
    if #bytes == 4 or prefix == ("\0"):rep(10) .. "\255\255" or prefix == "\0\100\255\155" .. ("\0"):rep(8) then
        return ("%d.%d.%d.%d"):format(bytes:byte(-4, -1))
    end
    local text, zeros = bytes:sub(1, 8):gsub("(.)(.)", function(high, low)
        return (":%x"):format(high:byte() * 256 + low:byte())
    end)
    repeat text, zeros = text:gsub(":0$", "") until zeros == 0
    return text:sub(2) .. "::/64"
end

-- Returns the integers of one call: five, or six with several quotas; or nil, whatever goes wrong. It asks only once.
function Limit:ask(key)
    local client, integers = redis:new(), #self.quotas > 1 and 6 or 5
    local answered, reply = pcall(function()
        client:set_timeout(self.timeout)
        -- A worker has 20 connections, and 1,000 calls may wait for one. nginx itself counts them: a request that its
        -- caller gives up leaves no place in use.
        assert(client:connect(self.host, self.port, { pool = "limits", pool_size = 20, backlog = 1000 }))
        local reply = assert(client[self.command](client, key, unpack(self.words)))
        assert(type(reply) == "table" and #reply == integers, "a reply of another shape")
        for i = 1, integers do assert(is_integer(reply[i], -2 ^ 53), "a reply of another shape") end
        return reply
    end)
    if answered then
        client:set_keepalive(60000)
        return reply
    end
    -- The connection may have a late reply, or lead to a server that a failover has made a replica.
    client:close()
    -- Once a second: there may be thousands.
    if now() > logged + 1e6 then
        logged = now()
        ngx.log(ngx.ERR, "Redis does not decide: ", reply)
    end
end

-- Takes a token from this worker's share of each quota, or from none. Returns the microseconds to wait. A key is in one
-- of 2,048 groups, which has 64 places for keys and for the moments at which all tokens of each are back. A key without
-- a place takes that with the earliest moment, and begins there: in a full group, a key may be refused for another's
-- calls, but none gets more than its share.
function Limit:share(key, moment)
    local digest, number, wait, places, moments = ngx.md5_bin(SALT .. key), 0, 0, {}, {}
    for i = 1, 6 do number = number * 256 + digest:byte(i) end
    local first = number % GROUPS * KEYS
    for i, quota in ipairs(self.quotas) do
        places[i] = first
        for place = first, first + KEYS - 1 do
            local is_known = quota.keys[place] == number
            if is_known or quota.moments[place] < quota.moments[places[i]] then places[i] = place end
            if is_known then break end
        end
        moments[i] = math.max(quota.moments[places[i]], moment) + quota.step
        wait = math.max(wait, moments[i] - quota.burst - moment)
    end
    for i, quota in ipairs(wait == 0 and self.quotas or {}) do
        quota.keys[places[i]], quota.moments[places[i]] = number, moments[i]
    end
    return wait
end

-- Answers the request if it is counted as this result, with this status.
function Limit:answer(result, status, wait, integers)
    ngx.shared.limits:incr(('limit="%s",result="%s"'):format(self.name, result), 1, 0)
    ngx.header["Access-Control-Expose-Headers"] = EXPOSED
    -- All headers are of one limit: the one that refuses, or has fewer tokens left.
    local before = tonumber(ngx.header[REMAINING])
    if status or integers and (not before or before > integers[3]) then
        local _, limit, remaining, _, reset_after, quota = unpack(integers or {}, 1, 6)
        local values = { limit, remaining, reset_after and math.ceil(reset_after * self.unit / 1000), quota }
        for i, header in ipairs(HEADERS) do ngx.header[header] = values[i] and ("%.0f"):format(values[i]) end
    end
    if status then
        ngx.header["Access-Control-Allow-Origin"] = limits.origin
        ngx.header["Retry-After"] = wait and ("%.0f"):format(math.ceil(wait / 1e6))
        return ngx.exit(status)
    end
end

-- Leaves the headers of one limit on a response of an application that has limits, too.
function limits.show()
    local own, its = {}, {}
    for _, header in ipairs(HEADERS) do
        local value = ngx.header[header]
        its[header] = ngx.var["upstream_http_" .. header:lower():gsub("-", "_")]
        -- The values of a header that both have sent are in a table, nginx's own first.
        own[header] = type(value) == "table" and value[1] or not its[header] and value or nil
    end
    local remaining, before = tonumber(its[REMAINING]), tonumber(own[REMAINING])
    local is_its = not before or remaining and (ngx.var.upstream_http_retry_after or remaining < before)
    for _, header in ipairs(HEADERS) do ngx.header[header] = (is_its and its or own)[header] end
end

-- Charges this caller, whose key is no address's ("name:caller:alice"), or the address, and refuses what is limited.
function Limit:check(caller)
    -- A browser asks by a preflight whether a page may make its call, and does not tell the page of a refusal.
    if ngx.req.get_method() == "OPTIONS" and ngx.var.http_access_control_request_method then return end
    local key, asked = self.name .. ":" .. (caller and "caller:" .. caller or limits.address()), now()
    -- A digest has few bytes, whatever the caller's name.
    local digest = ngx.md5_bin(SALT .. key)
    local known = self.refused and self.refused:get(digest)
    if known and known.expires > asked then return self:answer("limited", 429, known.allowed - asked) end
    local integers = self:ask(key)
    if not integers and self.fail == "closed" then return self:answer("closed", 503, 1e6) end
    if not integers then
        local wait = self:share(key, now())
        return self:answer("share", wait > 0 and 429, wait)
    end
    local limited, limit, _, retry_after = unpack(integers)
    if limited == 0 then return self:answer("allowed", nil, nil, integers) end
    -- A wait of -1 never ends: the limit is 0.
    if retry_after < 0 then return self:answer("limited", limit == 0 and 403 or 413, nil, integers) end
    if self.refused then
        local wait = (retry_after - 1) * 1e3
        self.refused:set(digest, { expires = asked + math.min(wait, self.remember * 1e6), allowed = asked + wait })
    end
    return self:answer("limited", 429, retry_after * self.unit * 1e3, integers)
end

return limits
