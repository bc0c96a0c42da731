package rig

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// pinnedEnv tells a process that Pin has already replaced.
const pinnedEnv = "FAAS_INFER_BENCH_CORE"

// PinCores replaces this process by itself, held to the first core that it may use,
// so that instances can have the second one for themselves. It returns the
// second core, in the process that is held.
func PinCores() (other int, err error) {
	if text := os.Getenv(pinnedEnv); text != "" {
		_, err := fmt.Sscanf(text, "%d", &other)
		return other, err
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return 0, fmt.Errorf("cores of this process: %w", err)
	}
	var cores []int
	for core := 0; len(cores) < all.Count(); core++ {
		if all.IsSet(core) {
			cores = append(cores, core)
		}
	}
	if len(cores) < 2 {
		return 0, errors.New("this bench needs two cores: one for the instances, one for everything else")
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread()
	if err := setAffinity(cores[0]); err != nil {
		return 0, err
	}
	return 0, syscall.Exec(self, os.Args, append(os.Environ(), fmt.Sprintf("%s=%d", pinnedEnv, cores[1])))
}

// RunOnCore runs f on a thread that is held to core: what f starts as a process is
// held to it too.
func RunOnCore(core int, f func() error) error {
	return run(f, func(*unix.CPUSet) (one unix.CPUSet) {
		one.Set(core)
		return one
	})
}

// WithCore runs f on a thread that may run on core beside its own.
func WithCore(core int, f func() error) error {
	return run(f, func(own *unix.CPUSet) unix.CPUSet {
		both := *own
		both.Set(core)
		return both
	})
}

// run runs f on a thread that may run on other cores than before.
func run(f func() error, on func(own *unix.CPUSet) unix.CPUSet) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("cores of this thread: %w", err)
	}
	set := on(&before)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("hold to cores: %w", err)
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &before))
}

func setAffinity(core int) error {
	var one unix.CPUSet
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("hold to core %d: %w", core, err)
	}
	return nil
}
