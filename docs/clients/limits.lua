-- Limits the requests of nginx by redis-cell. nginx.conf shows how; it belongs to the same folder.

local ffi = require "ffi"
local lrucache = require "resty.lrucache"
local found, redis = pcall(require, "resty.redis")      -- OpenResty's
if not found then redis = require "nginx.redis" end     -- Debian's, lua-nginx-redis

ffi.cdef [[ int limits_clock(int, long *) __asm__("clock_gettime"); ]]

-- The server, and the longest time in ms that a call waits for a free connection, for a new one, and for the reply. A
-- name would need a resolver, even "localhost". `nginxes` is how many nginx have the limits.
local limits = { host = "127.0.0.1", port = 6379, timeout = 100, nginxes = 1 }
local Limit = {}

-- The rows of a share, and the cells of each.
local ROWS, CELLS = 4, 16384
local HEADERS = { "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Quota" }
local SALT = io.open("/dev/urandom"):read(16)

local logged = 0
local time = ffi.new("long[2]")

-- Returns the monotonic clock's time in whole microseconds.
local function now()
    ffi.C.limits_clock(1, time)
    return tonumber(time[0]) * 1e6 + math.floor(tonumber(time[1]) / 1e3)
end

-- Returns a limit on each caller. A quota is { max_burst, count, period }. A call without an answer is decided by this
-- worker's share of the limit, or refused with { fail = "closed" }. With { remember = 10 }, the worker itself refuses a
-- limited caller until a token is back, for ten seconds at most: a reset or a refund counts only after that.
function limits.new(name, quotas, settings)
    settings = settings or {}
    local fail, remember, processes = settings.fail or "share", settings.remember, limits.nginxes * ngx.worker.count()
    assert(#quotas >= 1 and #quotas <= 8 and (fail == "share" or fail == "closed"), name)
    local self = { name = name, quotas = {}, words = {}, fail = fail, remember = remember }
    -- The most refused callers that the worker remembers: the oldest goes.
    self.refused = remember and lrucache.new(10000)
    -- Milliseconds, if they count: a wait of 100 ms would be remembered as none.
    self.command, self.unit = remember and "CL.PTHROTTLE" or "CL.THROTTLE", remember and 1 or 1000
    for i, quota in ipairs(quotas) do
        local max_burst, count, period = unpack(quota)
        -- Redis would have an error for each call with other numbers: the share would decide on all of them.
        assert(#quota == 3 and max_burst >= -1 and count >= 1 and period >= 1 and count <= period * 1e9
            and math.max(max_burst + 1, count) * period <= count * 2 ^ 32, name)
        local step = math.ceil(processes * period * 1e6 / count)
        local tokens = max_burst < 0 and 0 or math.max(1, math.floor((max_burst + 1) / processes))
        self.quotas[i] = { step = step, burst = tokens * step, cells = ffi.new("double[?]", ROWS * CELLS) }
        -- The quantity stands behind the first quota.
        for _, number in ipairs { max_burst, count, period * 1000 / self.unit, i == 1 and 1 or nil } do
            assert(number % 1 == 0 and number < 2 ^ 53, name)
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

-- Makes a call, and returns its integers, or nil and the reason. It never makes a call twice.
local function call(command, ...)
    local client = redis:new()
    client:set_timeout(limits.timeout)
    -- A worker has 20 connections, and 1,000 calls may wait for one. nginx itself counts them: a request that its
    -- caller gives up leaves no place in use.
    local options = { pool = "limits", pool_size = 20, backlog = 1000 }
    local reply, why = client:connect(limits.host, limits.port, options)
    if reply then reply, why = client[command](client, ...) end
    if reply then
        client:set_keepalive(60000)
        return reply
    end
    -- The connection may have a late reply, or lead to a server that a failover has made a replica.
    client:close()
    -- Once a second: there may be thousands.
    if now() > logged + 1e6 then
        logged = now()
        ngx.log(ngx.ERR, "Redis does not decide: ", why)
    end
end

-- Takes a token from this worker's share of each quota, or from none. Returns the microseconds to wait. The share is a
-- count-min sketch: the earliest of a key's cells, one in each row, is the moment at which all its tokens are back.
-- Other keys only move a cell later, so a collision can refuse a call and never allow one.
function Limit:share(key, moment)
    local digest, wait, places, moments = ngx.md5_bin(SALT .. key), 0, {}, {}
    for row = 1, ROWS do
        local high, low = digest:byte(2 * row, 2 * row + 1)
        places[row] = (row - 1) * CELLS + (high * 256 + low) % CELLS
    end
    for i, quota in ipairs(self.quotas) do
        local least = math.huge
        for _, place in ipairs(places) do least = math.min(least, quota.cells[place]) end
        moments[i] = math.max(least, moment) + quota.step
        wait = math.max(wait, moments[i] - quota.burst - moment)
    end
    if wait > 0 then return wait end
    for i, quota in ipairs(self.quotas) do
        for _, place in ipairs(places) do quota.cells[place] = math.max(quota.cells[place], moments[i]) end
    end
    return 0
end

-- Answers the request if it is counted as this result, with this status.
function Limit:answer(result, status, wait, integers)
    ngx.shared.limits:incr(('limit="%s",result="%s"'):format(self.name, result), 1, 0)
    -- All headers are of one limit: the one that refuses, or has fewer tokens left.
    local before = tonumber(ngx.header["X-RateLimit-Remaining"])
    if status or integers and (not before or before > integers[3]) then
        local _, limit, remaining, _, reset_after, quota = unpack(integers or {}, 1, 6)
        local values = { limit, remaining, reset_after and math.ceil(reset_after * self.unit / 1000), quota }
        for i, header in ipairs(HEADERS) do ngx.header[header] = values[i] end
    end
    if status then
        ngx.header["Retry-After"] = wait and math.ceil(wait / 1e6)
        return ngx.exit(status)
    end
end

-- Charges the request to the limit of this caller, by default an address, and refuses it if the limit does.
function Limit:check(caller)
    -- An internal redirect would be charged a second time.
    if ngx.req.is_internal() then return end
    local key, asked = self.name .. ":" .. (caller or limits.address()), now()
    local known = self.refused and self.refused:get(key)
    if known and known.expires > asked then return self:answer("limited", 429, known.allowed - asked) end
    local integers = call(self.command, key, unpack(self.words))
    if not integers and self.fail == "closed" then return self:answer("closed", 503, 1e6) end
    if not integers then
        local wait = self:share(key, now())
        return self:answer("share", wait > 0 and 429, wait)
    end
    local limited, limit, _, retry_after = unpack(integers)
    if limited == 0 then return self:answer("allowed", nil, nil, integers) end
    if limit == 0 then return self:answer("limited", 403, nil, integers) end
    if self.refused then
        local wait = (retry_after - 1) * 1e3
        self.refused:set(key, { expires = asked + math.min(wait, self.remember * 1e6), allowed = asked + wait })
    end
    return self:answer("limited", 429, retry_after * self.unit * 1e3, integers)
end

return limits
