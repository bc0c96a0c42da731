package web

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// lowest and highest bound a range of ports that the kernel does not give to clients.
// Otherwise a client's connection, even one to the address itself, could get the port
// while the program that listens at it restarts.
const lowest, highest = 15000, 32000

// returned holds the addresses that UnusedAddress has returned.
var returned sync.Map

// UnusedAddress returns a free TCP address of the loopback interface, for a program that
// starts later and may restart. Two calls in a process never return the same address. It
// fails if 100 tries find no free port.
func UnusedAddress() (string, error) {
	forkOnce()
	var last error
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(highest-lowest))
		if _, taken := returned.LoadOrStore(address, true); taken {
			continue
		}
		if last = tryListen(address); last == nil {
			return address, nil
		}
	}
	return "", errors.Join(errors.New("no port of the loopback interface is free"), last)
}
