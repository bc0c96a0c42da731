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

// healthInterval is the time between two health checks while a load runs.
const healthInterval = 20 * time.Millisecond

// checkHealth checks the provider's health until ctx ends, and returns the response times.
// They are the time of the way between client and provider, without a function.
func (s *Server) checkHealth(ctx context.Context) (took []time.Duration) {
	tick := time.Tick(healthInterval)
	for {
		select {
		case <-ctx.Done():
			return took
		case <-tick:
		}
		began := time.Now()
		if _, err := s.get(ctx, "/healthz"); err == nil {
			took = append(took, time.Since(began))
		}
	}
}

// worked returns the processor time that this process and the provider have used.
func (s *Server) worked() (time.Duration, error) {
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		return 0, fmt.Errorf("this process's processor time: %w", err)
	}
	provider, err := processorTime(s.Process.Pid)
	return time.Duration(own.Utime.Nano()+own.Stime.Nano()) + provider, err
}

// processorTime returns how long a process's living threads have run on a core: the sum of
// the first field, in ns, of each thread's schedstat.
func processorTime(pid int) (sum time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err == nil && len(files) == 0 {
		err = errors.New("there is no such process, or the kernel has no schedstat (CONFIG_SCHED_INFO)")
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
