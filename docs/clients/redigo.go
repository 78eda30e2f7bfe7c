// Rate limiting with redigo. To run this file: go mod init demo && go get github.com/gomodule/redigo/redis, and then
// [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] go run redigo.go
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// pool opens a connection for each concurrent call, and keeps up to 20 idle ones open. After a connection times out or
// breaks, the next call opens a new one. After a failover, MaxConnLifetime replaces connections to the old primary.
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

// throttle returns the five integers of CL.THROTTLE's reply. It does not retry.
func throttle(key string, maxBurst, count, period, quantity int64) ([]int64, error) {
	connection := pool.Get()
	defer connection.Close()
	return redis.Int64s(connection.Do("CL.THROTTLE", key, maxBurst, count, period, quantity))
}

func main() {
	for call := 0; call < 4; call++ { // The quota allows three calls at once, and then one a minute.
		if reply, err := throttle("user123", 2, 1, 60, 1); err == nil {
			fmt.Println(reply)
		} else if text := err.Error(); strings.HasPrefix(text, "ERR ") && !strings.Contains(text, "number of clients") {
			panic(err) // ERR means that an argument is wrong, or that the server has too many clients.
		} else {
			fmt.Println("Redis did not decide:", err)
		}
	}
}
