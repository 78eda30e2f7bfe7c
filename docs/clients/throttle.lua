-- Limits the requests of nginx by redis-cell. nginx.conf shows how; it belongs to the same folder.

local redis = require "nginx.redis"     -- Debian's, lua-nginx-redis; OpenResty's is "resty.redis"

-- The server, and the longest time in ms that a call waits for a free connection, for a new one, and for each part of
-- the reply. A name would need a resolver, even "localhost".
local HOST, PORT, TIMEOUT = "127.0.0.1", 6379, 100
local logged = 0

-- Calls CL.THROTTLE once. A quota is max_burst, count, period, perhaps a quantity, and further quotas. Returns five
-- integers, or six if there are further quotas, or nil: Redis did not decide.
local function throttle(key, quota)
    local client, length = redis:new(), #quota > 4 and 6 or 5
    client:set_timeout(TIMEOUT)
    local answered, reply = pcall(function()
        -- A worker has 20 connections, and 1,000 calls may wait for one.
        assert(client:connect(HOST, PORT, { pool = "throttle", pool_size = 20, backlog = 1000 }))
        local reply = assert(client["CL.THROTTLE"](client, key, unpack(quota)))
        assert(type(reply) == "table" and #reply == length, "the reply has another shape")
        for i = 1, length do assert(type(reply[i]) == "number", "the reply has another shape") end
        return reply
    end)
    if answered then
        client:set_keepalive(60000)
        return reply
    end
    -- The connection may have a late reply, or lead to a server that a failover has made a replica.
    client:close()
    if ngx.now() < logged + 1 then return end     -- A line a second is enough.
    logged = ngx.now()
    ngx.log(ngx.ERR, "Redis did not decide: ", reply)
end

-- Returns the caller's IPv4 address, or the first 64 bits of one of IPv6: a customer has all that begin with them.
local function network()
    local bytes, address = ngx.var.binary_remote_addr, ngx.var.remote_addr
    if #bytes == 4 or address:find("^::ffff:") then return address end
    assert(#bytes == 16, "a Unix socket is no address")
    return (bytes:sub(1, 8):gsub("..", function(pair) return ("%02x%02x:"):format(pair:byte(1, 2)) end)) .. ":/64"
end

local function refuse(status, wait)
    ngx.header["Retry-After"], ngx.header["Cache-Control"] = wait, "no-store"
    return ngx.exit(status)
end

-- Charges the caller, who is $who or, if that is empty, an address, and refuses what is limited. With `may_pass`, a
-- request without an answer from Redis passes to the limit_req of $unanswered; otherwise it is refused.
local function check(name, quota, may_pass)
    -- A browser asks by a preflight whether a page may make its call, and does not tell the page of a refusal.
    if ngx.req.get_method() == "OPTIONS" and ngx.var.http_access_control_request_method then return end
    local who = ngx.var.who or ""
    local key = name .. (who == "" and ":" .. network() or ":caller:" .. who)
    local reply = throttle(key, quota)
    if not reply then
        if not may_pass then return refuse(503, 1) end
        ngx.var.unanswered = key
        return
    end
    local limited, limit, remaining, retry_after, reset_after = unpack(reply)
    ngx.header["X-RateLimit-Limit"], ngx.header["X-RateLimit-Remaining"] = limit, remaining
    ngx.header["X-RateLimit-Reset"] = reset_after
    if limited == 0 then return end
    -- A wait of -1 never ends: the call asks for more than the limit, which may be 0.
    if retry_after < 0 then return refuse(limit == 0 and 403 or 413) end
    return refuse(429, retry_after)
end

return check
