package web

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// ListenPatience is how long Listen retries an address that is taken. A killed process's
// socket is gone by then, and a user who has started the program twice need not wait long.
const ListenPatience = 3 * time.Second

// pause is the time between two tries.
const pause = 20 * time.Millisecond

// Listen listens at a TCP address. It retries an address that is taken for
// [ListenPatience]. The error then wraps [syscall.EADDRINUSE] and names the process that
// has the address, if it belongs to the same user.
func Listen(address string) (l net.Listener, err error) {
	err = retryWhileTaken(address, func() error {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// forkOnce makes package os do the one fork that it does without holding
// [syscall.ForkLock]. Package os forks a process that exits at once when it first needs a
// process handle, to see whether the kernel supports handles.
var forkOnce = sync.OnceFunc(func() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
})

// CheckFree returns nil if another program could listen at a TCP address. It waits and
// fails as [Listen] does.
func CheckFree(address string) error {
	forkOnce()
	return retryWhileTaken(address, func() error { return tryListen(address) })
}

// tryListen returns nil if an address can be listened at now.
func tryListen(address string) error {
	// A process forked between Listen and Close would keep the address.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// retryWhileTaken calls try until the address is free, for at most ListenPatience.
func retryWhileTaken(address string, try func() error) error {
	for end := time.Now().Add(ListenPatience); ; time.Sleep(pause) {
		err := try()
		if !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		if time.Now().After(end) {
			return withHolder(err, address)
		}
	}
}

// withHolder adds the process that has the address to an error, if it is known.
func withHolder(err error, address string) error {
	_, text, splitErr := net.SplitHostPort(address)
	n, parseErr := strconv.Atoi(text)
	if splitErr != nil || parseErr != nil {
		return err
	}
	if who := holder(n); who != "" {
		return fmt.Errorf("%w by %s", err, who)
	}
	return err
}
