package fidelity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// asking is how often the provider is asked how it is while a load runs.
const asking = 20 * time.Millisecond

// ask asks the provider how it is, again and again until ctx ends, and returns how
// long each answer took: the way between client and provider, without any function.
func (s *Server) ask(ctx context.Context) (took []time.Duration) {
	tick := time.NewTicker(asking)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return took
		case <-tick.C:
		}
		began := time.Now()
		if _, err := s.get(ctx, "/healthz"); err == nil {
			took = append(took, time.Since(began))
		}
	}
}

// worked is the processor time that this process and the provider have used.
func (s *Server) worked() (time.Duration, error) {
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		return 0, fmt.Errorf("this process's processor time: %w", err)
	}
	provider, err := ProcessorTime(s.Process.Pid)
	return time.Duration(own.Utime.Nano()+own.Stime.Nano()) + provider, err
}

// ProcessorTime is the time that a process's threads, those that live, have been on
// a core: the first field, in ns, of each one's schedstat.
func ProcessorTime(pid int) (sum time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err == nil && len(files) == 0 {
		err = errors.New("it has no thread, or this kernel does not tell (CONFIG_SCHED_INFO)")
	}
	if err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // A thread may have ended meanwhile.
		first, _, _ := strings.Cut(string(text), " ")
		if ns, err := strconv.ParseInt(first, 10, 64); err == nil {
			sum += time.Duration(ns)
		}
	}
	return sum, nil
}
