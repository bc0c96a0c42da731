package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/backoff"
)

// KillAll sends SIGKILL to all processes that list returns. It repeats this until list
// returns none, because they may fork meanwhile. Before a kill it holds the process by a
// pidfd and calls list again, so a process that got a dead member's pid survives. It never
// kills this process. If some are left after timeout, the error says how many.
func KillAll(list func() ([]int, error), timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for n := 1; ; n++ {
		pids, err := others(list)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes are still there %v after SIGKILL", len(pids), timeout)
		}
		if err := killListed(pids, list); err != nil {
			return err
		}
		time.Sleep(backoff.Pause(n, 100*time.Microsecond, 10*time.Millisecond))
	}
}

func others(list func() ([]int, error)) ([]int, error) {
	pids, err := list()
	self := os.Getpid()
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == self }), err
}

func killListed(pids []int, list func() ([]int, error)) error {
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err == nil:
			held[pid] = fd
		case !errors.Is(err, unix.ESRCH):
			// Without pidfds, only the short time between list and kill
			// protects a process that got the pid.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	again, err := others(list)
	if err != nil {
		return err
	}
	for _, pid := range again {
		if fd, ok := held[pid]; ok {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
	return nil
}

// Marked lists the processes that were started with the environment entry mark
// ("NAME=value") or inherited it. It finds processes without a cgroup and without a
// recorded pid. It leaves out other users' processes that it may not read.
func Marked(mark string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile("/proc/" + entry.Name() + "/environ")
		if err == nil && hasEntry(environ, mark) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// hasEntry reports whether a block of NUL-terminated entries contains entry.
func hasEntry(environ []byte, entry string) bool {
	for item := range bytes.SplitSeq(environ, []byte{0}) {
		if string(item) == entry {
			return true
		}
	}
	return false
}
