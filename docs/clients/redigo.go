// Rate limiting with redigo, and a middleware for net/http. To run this file in a new folder:
// go mod init demo && go get github.com/gomodule/redigo/redis
// [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] [HTTP_PORT=8080] go run redigo.go
// With Debian's packages alone: GO111MODULE=off GOPATH=/usr/share/gocode go run redigo.go
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// The connections of a process, and how long a call waits for a free one.
const (
	connections = 20
	wait        = time.Second
)

// lost is the time, in ns, when a connection was last lost, or led to a server that had become a replica. Older
// connections most likely do so too.
var lost atomic.Int64

// unanswered is how many calls in a row got no reply, and asked the time of the last call.
var unanswered, asked atomic.Int64

// silent tells whether the server has answered none of as many calls as there are connections. Only one call per
// timeout still asks a silent server.
func silent(timeout time.Duration) bool {
	return unanswered.Load() >= connections && time.Now().UnixNano() < asked.Load()+int64(timeout)
}

// connect returns a pool of connections for all goroutines, made at the start and not in the first burst. The pool does
// not repeat a call.
func connect() *redis.Pool {
	seconds, err := strconv.ParseFloat(setting("TIMEOUT", "0.1"), 64)
	if err != nil {
		log.Fatal(err)
	}
	// The longest time that a call waits for a new connection, and for the reply.
	timeout := time.Duration(seconds * float64(time.Second))
	pool := &redis.Pool{
		MaxIdle:   connections,
		MaxActive: connections,
		Wait:      true,
		Dial: func() (redis.Conn, error) {
			// No older connection is left then.
			if silent(timeout) {
				return nil, errors.New("the server is silent")
			}
			asked.Store(time.Now().UnixNano())
			return redis.Dial("tcp", "127.0.0.1:"+setting("REDIS_PORT", "6379"), redis.DialConnectTimeout(timeout),
				redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout))
		},
		TestOnBorrow: func(_ redis.Conn, used time.Time) error {
			if used.UnixNano() < lost.Load() {
				return errors.New("connected to a server that was lost")
			}
			return nil
		},
	}
	for i := 0; i < connections; i++ {
		connection := pool.Get()
		defer connection.Close()
		if err := connection.Err(); err != nil {
			log.Print("no server yet: ", err)
			break
		}
	}
	return pool
}

type header struct {
	name  string
	value int64
}

// throttle makes a call, and returns the status and the headers to answer an HTTP request with. A call without a reply
// is allowed if fail is "open", and refused if it is "closed". A call that gets no free connection is refused.
func throttle(pool *redis.Pool, key string, maxBurst, count, period, quantity int64, fail string) (int, []header) {
	if quantity < 0 {
		log.Print("a quantity below zero would give tokens back")
		return http.StatusBadRequest, nil
	}
	waiting, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	connection, err := pool.GetContext(waiting)
	if err == context.DeadlineExceeded {
		log.Print("no connection is free")
		return refused()
	}
	answer, err := redis.Int64s(connection.Do("CL.THROTTLE", key, maxBurst, count, period, quantity))
	connection.Close()
	// An error of the server is a reply, too.
	var reply redis.Error
	isLost := err != nil && !errors.As(err, &reply)
	if isLost {
		unanswered.Add(1)
	} else {
		unanswered.Store(0)
	}
	if isLost || strings.HasPrefix(string(reply), "READONLY") {
		lost.Store(time.Now().UnixNano())
	}
	if err != nil {
		log.Printf("no limits, failing %s: %v", fail, err)
		if fail == "open" {
			return http.StatusOK, nil
		}
		return refused()
	}
	limited, limit, remaining, retryAfter, resetAfter := answer[0], answer[1], answer[2], answer[3], answer[4]
	headers := []header{
		{"X-RateLimit-Limit", limit},
		{"X-RateLimit-Remaining", remaining},
		{"X-RateLimit-Reset", resetAfter},
	}
	// The wait is -1 if the call was allowed, or if it asks for more than the limit and will never be allowed.
	if retryAfter >= 0 {
		headers = append(headers, header{"Retry-After", retryAfter})
	}
	if limited == 1 && retryAfter < 0 {
		return http.StatusRequestEntityTooLarge, headers
	}
	if limited == 1 {
		return http.StatusTooManyRequests, headers
	}
	return http.StatusOK, headers
}

func refused() (int, []header) {
	return http.StatusServiceUnavailable, []header{{"Retry-After", 1}}
}

// limit returns a middleware that limits each address. The key is the name and the address; docs/clients.md has other
// keys, under "Which key".
func limit(pool *redis.Pool, name string, maxBurst, count, period int64, fail string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		status, headers := throttle(pool, name+":"+address(request), maxBurst, count, period, 1, fail)
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

// address returns the caller's IPv4 address, or the 2^64 addresses around one of IPv6: a customer has all of them.
func address(request *http.Request) string {
	peer, err := netip.ParseAddrPort(request.RemoteAddr)
	if err != nil {
		return request.RemoteAddr
	}
	ip := peer.Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

func main() {
	pool := connect()
	// Serve HTTP if HTTP_PORT is set.
	if port := os.Getenv("HTTP_PORT"); port != "" {
		hello := http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) { fmt.Fprintln(response, "Hello") })
		http.Handle("/", limit(pool, "hello", 2, 1, 60, "open", hello))
		http.Handle("/login", limit(pool, "login", 2, 1, 60, "closed", hello))
		// A connection without a request is closed after five seconds.
		server := http.Server{Addr: "127.0.0.1:" + port, ReadHeaderTimeout: 5 * time.Second}
		log.Fatal(server.ListenAndServe())
	}
	// The limiter allows three at once and one a minute; the last call asks for four tokens.
	for _, quantity := range []int64{1, 1, 1, 1, 4} {
		status, headers := throttle(pool, "user123", 2, 1, 60, quantity, setting("FAIL", "open"))
		var lines []string
		for _, header := range headers {
			lines = append(lines, fmt.Sprintf("%s: %d", header.name, header.value))
		}
		fmt.Println(status, strings.Join(lines, ", "))
	}
}
