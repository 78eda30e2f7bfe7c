// Rate limiting with redigo. To run this file in a new folder:
// go mod init demo && go get github.com/gomodule/redigo/redis
// [REDIS_URL=redis://127.0.0.1:6379] [REDIS_TIMEOUT=0.1] go run redigo.go
// Debian's packages alone are enough: GO111MODULE=off GOPATH=/usr/share/gocode go run redigo.go
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
)

// connect returns a pool of at most 20 connections for all goroutines. A call waits no longer than timeout for each
// step: a place in the pool, a connection, the reply. It has a connection of its own: one that was used before may lead
// to a server that a failover has made a replica. A closed one keeps a port of this machine for a minute. For more than
// 400 calls a second, set MaxIdle: 20 and MaxConnLifetime: time.Second: a replica is then left after a second.
func connect(url string, timeout time.Duration) *redis.Pool {
	return &redis.Pool{MaxActive: 20, Wait: true,
		Dial: func() (redis.Conn, error) {
			return redis.DialURL(url, redis.DialConnectTimeout(timeout),
				redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout))
		},
	}
}

// throttle returns the status and the headers to answer a request with. A call without an answer is refused.
func throttle(pool *redis.Pool, timeout time.Duration, key string, maxBurst, count, period int64,
	quantity uint32) (int, string) {
	waiting, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// If there is none in time, the connection is one whose calls fail.
	connection, _ := pool.GetContext(waiting)
	defer connection.Close()
	values, err := redis.Values(connection.Do("CL.THROTTLE", key, maxBurst, count, period, quantity))
	var reply []int64
	for _, value := range values {
		if integer, ok := value.(int64); ok {
			reply = append(reply, integer)
		}
	}
	// Whatever else a server or a proxy says is no answer.
	if err != nil || len(values) != 5 || len(reply) != 5 {
		log.Print("Redis did not decide: ", values, err)
		return 503, "Retry-After: 1"
	}
	limited, limit, retryAfter := reply[0] != 0, reply[1], reply[3]
	headers := fmt.Sprintf("X-RateLimit-Limit: %d, X-RateLimit-Remaining: %d, X-RateLimit-Reset: %d",
		limit, reply[2], reply[4])
	switch {
	case !limited:
		return 200, headers
	case retryAfter >= 0:
		return 429, fmt.Sprintf("%s, Retry-After: %d", headers, retryAfter)
	case limit == 0: // A wait of -1 never ends: the call asks for more than the limit, which may be 0.
		return 403, headers
	}
	return 413, headers
}

func main() {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	timeout, err := time.ParseDuration(os.Getenv("REDIS_TIMEOUT") + "s")
	if err != nil {
		timeout = 100 * time.Millisecond
	}
	pool := connect(url, timeout)
	// The limiter allows three at once and one a minute; the last call asks for four tokens.
	for _, quantity := range []uint32{1, 1, 1, 1, 4} {
		fmt.Println(throttle(pool, timeout, "user123", 2, 1, 60, quantity))
	}
}
