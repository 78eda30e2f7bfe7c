package main

import (
	"fmt"
	"net/http"
	"os"
)

// init prints the network that the example limits for each address; with no address, the answer to a quantity below
// zero.
func init() {
	if len(os.Args) == 1 {
		fmt.Println(throttle(nil, "user123", 2, 1, 60, -1, "open"))
	}
	for _, peer := range os.Args[1:] {
		fmt.Println(address(&http.Request{RemoteAddr: peer}))
	}
	os.Exit(0)
}
