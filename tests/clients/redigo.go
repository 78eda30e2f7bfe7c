// Rate limiting with redigo. As a program: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] go run redigo.go
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// What a call without an answer decides: "open" allows it, "closed" refuses it.
var fail = setting("FAIL", "open")

// connect returns a pool of connections for all goroutines. It does not ask again by itself.
func connect() *redis.Pool {
	seconds, err := strconv.ParseFloat(setting("TIMEOUT", "0.1"), 64)
	if err != nil {
		log.Fatal(err)
	}
	// How long a call waits for the server.
	timeout := time.Duration(seconds * float64(time.Second))
	return &redis.Pool{
		MaxIdle:   20,
		MaxActive: 100,
		Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", "127.0.0.1:"+setting("REDIS_PORT", "6379"), redis.DialConnectTimeout(timeout),
				redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout))
		},
	}
}

type header struct {
	name  string
	value int64
}

// throttle makes a call, and returns the status and the headers to answer an HTTP request with.
func throttle(pool *redis.Pool, key string, maxBurst, count, period, quantity int64) (int, []header) {
	connection := pool.Get()
	defer connection.Close()
	answer, err := redis.Int64s(connection.Do("CL.THROTTLE", key, maxBurst, count, period, quantity))
	if err != nil {
		log.Printf("no limits, failing %s: %v", fail, err)
		if fail == "open" {
			return http.StatusOK, nil
		}
		return http.StatusServiceUnavailable, []header{{"Retry-After", 1}}
	}
	limited, limit, remaining, retryAfter, resetAfter := answer[0], answer[1], answer[2], answer[3], answer[4]
	headers := []header{
		{"X-RateLimit-Limit", limit},
		{"X-RateLimit-Remaining", remaining},
		{"X-RateLimit-Reset", resetAfter},
	}
	// -1 where the call was allowed, and where it asks for more than the limit and never will be.
	if retryAfter >= 0 {
		headers = append(headers, header{"Retry-After", retryAfter})
	}
	if limited == 1 {
		return http.StatusTooManyRequests, headers
	}
	return http.StatusOK, headers
}

// limit is a middleware: so many requests of a name, for each address. See "Which key" for others.
func limit(pool *redis.Pool, name string, maxBurst, count, period int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		address, _, _ := net.SplitHostPort(request.RemoteAddr)
		status, headers := throttle(pool, name+":"+address, maxBurst, count, period, 1)
		for _, header := range headers {
			response.Header().Set(header.name, strconv.FormatInt(header.value, 10))
		}
		if status != http.StatusOK {
			http.Error(response, "Try again later", status)
			return
		}
		next.ServeHTTP(response, request)
	})
}

func main() {
	pool := connect()
	// With HTTP_PORT, it serves requests.
	if port := os.Getenv("HTTP_PORT"); port != "" {
		hello := http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) { fmt.Fprintln(response, "Hello") })
		log.Fatal(http.ListenAndServe("127.0.0.1:"+port, limit(pool, "hello", 2, 1, 60, hello)))
	}
	// Three at once and one a minute; the last call asks for four.
	for _, quantity := range []int64{1, 1, 1, 1, 4} {
		status, headers := throttle(pool, "user123", 2, 1, 60, quantity)
		var lines []string
		for _, header := range headers {
			lines = append(lines, fmt.Sprintf("%s: %d", header.name, header.value))
		}
		fmt.Println(status, strings.Join(lines, ", "))
	}
}
