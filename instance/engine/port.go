package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// lowest and highest bound a range of ports that the kernel does not give to clients. Any
// other port could become a client's, even of the client that asks whether the program
// there is ready, before the program listens or while it restarts.
const lowest, highest = 15000, 32000

// returned holds the ports that FreePort has returned.
var returned sync.Map

// FreePort returns a free TCP port of this machine, for a program that listens there later
// and may restart. Two calls in a process never return the same port. It fails if 100 tries
// find none.
func FreePort() (int, error) {
	var last error
	for range 100 {
		port := lowest + rand.IntN(highest-lowest)
		if _, taken := returned.LoadOrStore(port, true); taken {
			continue
		}
		if last = tryListen(port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: %w", errors.Join(errors.New("100 tries found none"), last))
}

// FreeAddress returns an address of the loopback interface with a [FreePort].
func FreeAddress() (string, error) {
	port, err := FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// tryListen returns nil if a port can be listened at now, on every interface.
func tryListen(port int) error {
	// A process forked between Listen and Close would keep the port.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}
