#!/bin/sh
# Starts nginx with docs/clients/nginx.conf in the folder $1, before APPLICATION or one that answers "Hello" and more.
set -e
mkdir -p "$1/tmp"
cp limits.lua "$1"
proxies=$(printf 'set_real_ip_from %s; ' $(echo "${PROXY:-192.0.2.1}" | sed 's/,/ /g; s/unix/&:/'))
sed -e "s/127.0.0.1:8080/127.0.0.1:$HTTP_PORT/" -e "s|127.0.0.1:8081|${APPLICATION:-unix:$1/application}|" \
    -e "s/^worker_processes .*/&\ndaemon off; user root;/" \
    -e "s/limits = require \"limits\"/&; limits.port, limits.nginxes = $REDIS_PORT, ${PROCESSES:-1}/" \
    -e "s#hello = limits.new#limits.timeout = 1000 * $TIMEOUT; $SETTING &#" \
    -e "s/items = .*/&\nsecond = limits.new('nginx_second', { { 0, 1, 1 } }, { remember = 10 })/" \
    -e "/^        location \/ {/i include $TESTS/nginx_site.conf;" \
    -e "s|# set_real_ip_from 192.0.2.1;|$proxies|" -e '$d' nginx.conf >"$1/nginx.conf"
cat >>"$1/nginx.conf" <<CONF
    server {
        listen unix:$1/application;
        location / { add_header Retry-After \$arg_wait; return 200 "Hello\n"; }
        location /fails { return 500; }
        location /missing { return 404; }
        location /moved { return 302 /; }
    }
}
CONF
exec nginx -p "$1" -c nginx.conf
