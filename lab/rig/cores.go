package rig

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// pinnedEnv is set in a process that PinCores has already replaced.
const pinnedEnv = "FAAS_INFER_BENCH_CORE"

// PinCores re-executes this program, pinned to the first core that it may use. Instances
// can then have the second core to themselves. In the pinned process it returns the second
// core.
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
		return 0, errors.New("this bench needs two cores: one for the instances, one for all other processes")
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

// OwnCore returns the first core that this thread may use.
func OwnCore() (core int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, fmt.Errorf("cores of this thread: %w", err)
	}
	for !set.IsSet(core) {
		core++
	}
	return core, nil
}

// RunOnCore runs f on a thread that is pinned to core. Processes that f starts are pinned
// too.
func RunOnCore(core int, f func() error) error {
	return run(f, func(*unix.CPUSet) (one unix.CPUSet) {
		one.Set(core)
		return one
	})
}

// RunOnCores runs f on a thread that is pinned to several cores. Processes that f starts are
// pinned too.
func RunOnCores(cores []int, f func() error) error {
	return run(f, func(*unix.CPUSet) (set unix.CPUSet) {
		for _, core := range cores {
			set.Set(core)
		}
		return set
	})
}

// WithCore runs f on a thread that may also run on core. Processes that f starts may too.
func WithCore(core int, f func() error) error {
	return run(f, func(own *unix.CPUSet) unix.CPUSet {
		both := *own
		both.Set(core)
		return both
	})
}

// run runs f on a thread with the cores that on returns for the thread's present ones.
func run(f func() error, on func(own *unix.CPUSet) unix.CPUSet) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("cores of this thread: %w", err)
	}
	set := on(&before)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to cores: %w", err)
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &before))
}

func setAffinity(core int) error {
	var one unix.CPUSet
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("pin to core %d: %w", core, err)
	}
	return nil
}
