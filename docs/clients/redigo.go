// Rate limiting with redigo. To run this file: go mod init demo && go get github.com/gomodule/redigo/redis
// [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] go run redigo.go
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
)

// connect returns a pool of at most 20 connections for all goroutines, with a timeout for each step. Each call opens a
// connection, because an older one may lead to a replica after a failover. A closed connection holds a local port for a
// minute: for more than 400 calls a second, set MaxIdle: 20 and MaxConnLifetime: time.Second.
func connect(url string, timeout time.Duration) *redis.Pool {
	return &redis.Pool{MaxActive: 20, Wait: true,
		Dial: func() (redis.Conn, error) {
			return redis.DialURL(url, redis.DialConnectTimeout(timeout), redis.DialTLSHandshakeTimeout(timeout),
				redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout))
		},
	}
}

// throttle calls CL.THROTTLE and returns its five integers, or an error if Redis did not decide.
func throttle(pool *redis.Pool, timeout time.Duration, key string, maxBurst, count, period int64,
	quantity uint32) (reply []int64, err error) {
	waiting, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	connection, err := pool.GetContext(waiting)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	values, err := redis.Values(connection.Do("CL.THROTTLE", key, maxBurst, count, period, quantity))
	for _, value := range values {
		// redis.Int64s would accept a string.
		if integer, ok := value.(int64); ok {
			reply = append(reply, integer)
		}
	}
	if err == nil && (len(values) != 5 || len(reply) != 5) {
		err = fmt.Errorf("not a reply of CL.THROTTLE: %q", values)
	}
	return reply, err
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
	// Three calls pass at once, and one more each minute.
	for pool, call := connect(url, timeout), 0; call < 4; call++ {
		fmt.Println(throttle(pool, timeout, "user123", 2, 1, 60, 1))
	}
}
