package web

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// lowest and highest are ports that the kernel does not give to clients by itself: one
// of these could get the address while its program is away, even for a connection to
// itself.
const lowest, highest = 15000, 32000

// given are the addresses that Unused has returned.
var given sync.Map

// UnusedAddress returns a TCP address of the loopback interface at which nobody listens, for a
// program that is started later and may be started again. No two calls of a process get
// the same one. It fails when no port is free.
func UnusedAddress() (string, error) {
	forkOnce()
	var last error
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(highest-lowest))
		if _, taken := given.LoadOrStore(address, true); taken {
			continue
		}
		if last = opens(address); last == nil {
			return address, nil
		}
	}
	return "", errors.Join(errors.New("no port of the loopback interface is free"), last)
}
