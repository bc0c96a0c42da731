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

// ListenPatience is how long an address that is taken is tried again: long enough for
// what a killed process leaves behind, short enough for a person who has started
// the program twice.
const ListenPatience = 3 * time.Second

// between two tries.
const pause = 20 * time.Millisecond

// Listen listens at a TCP address. One that is taken is tried again for
// [ListenPatience]; the error then names the process that has it, where that can be
// seen, and wraps [syscall.EADDRINUSE].
func Listen(address string) (l net.Listener, err error) {
	err = insist(address, func() error {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// forkOnce has package os make the one process that it makes without holding
// [syscall.ForkLock]: when it first needs a handle of a process it forks one that
// exits, to see whether the kernel gives handles.
var forkOnce = sync.OnceFunc(func() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
})

// CheckFree returns nil when a TCP address can be listened at by a program that opens
// the socket itself. It waits and fails as [Listen] does.
func CheckFree(address string) error {
	forkOnce()
	return insist(address, func() error { return opens(address) })
}

// opens returns nil if an address can be listened at now.
func opens(address string) error {
	// A process that is forked now would keep the address after Close.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// insist tries again for as long as the address is taken, and Patience lasts.
func insist(address string, try func() error) error {
	for end := time.Now().Add(ListenPatience); ; time.Sleep(pause) {
		err := try()
		if !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		if time.Now().After(end) {
			return named(err, address)
		}
	}
}

// named adds the process that has the address, if it is known.
func named(err error, address string) error {
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
