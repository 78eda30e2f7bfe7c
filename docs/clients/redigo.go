// Rate limiting with redigo. To run this file: go mod init demo && go get github.com/gomodule/redigo/redis
// [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] go run redigo.go
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// pool opens a connection for each concurrent call, and keeps 20 of them. After a timeout or a broken connection, the
// next call opens a new one. MaxConnLifetime replaces a connection that leads to a replica after a failover.
var pool = &redis.Pool{MaxIdle: 20, MaxConnLifetime: 10 * time.Second, Dial: func() (redis.Conn, error) {
	url, timeout := os.Getenv("REDIS_URL"), 100*time.Millisecond
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	if seconds, err := time.ParseDuration(os.Getenv("REDIS_TIMEOUT") + "s"); err == nil {
		timeout = seconds
	}
	return redis.DialURL(url, redis.DialConnectTimeout(timeout), redis.DialTLSHandshakeTimeout(timeout),
		redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout))
}}

// throttle returns the five integers of CL.THROTTLE. It does not retry.
func throttle(key string, maxBurst, count, period, quantity int64) ([]int64, error) {
	connection := pool.Get()
	defer connection.Close()
	return redis.Int64s(connection.Do("CL.THROTTLE", key, maxBurst, count, period, quantity))
}

func main() {
	for call := 0; call < 4; call++ { // Three calls pass at once, and one more each minute.
		if reply, err := throttle("user123", 2, 1, 60, 1); err == nil {
			fmt.Println(reply)
		} else if text := err.Error(); strings.HasPrefix(text, "ERR ") && !strings.Contains(text, "number of clients") {
			panic(err) // An argument is wrong. A server with too many clients replies with ERR, too.
		} else {
			fmt.Println("Redis did not decide:", err)
		}
	}
}
