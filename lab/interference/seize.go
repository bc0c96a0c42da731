package interference

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// period is that of the seizure, priority its real-time priority.
	period   = 20 * time.Millisecond
	priority = 50
)

// Seize takes a part of a core for d, with real-time priority: it computes for that part of each
// period. Ordinary processes get the core only in the rest, whatever their weight.
func Seize(ctx context.Context, core int, share float64, d time.Duration) error {
	runtime.LockOSThread() // The thread ends with the goroutine: nobody else may have it.
	var one unix.CPUSet
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("pin to core %d: %w", core, err)
	}
	attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}
	if err := unix.SchedSetAttr(0, &attributes, 0); err != nil {
		return fmt.Errorf("take real-time priority: %w; run the bench as root", err)
	}
	busy := time.Duration(share * float64(period))
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		for until := time.Now().Add(busy); time.Now().Before(until); {
		}
		pause := unix.NsecToTimespec(int64(period - busy))
		_ = unix.Nanosleep(&pause, nil) // Not Go's timer: its thread would not have the priority.
	}
	return nil
}

// coreOf returns the first core that the only instance of a provider may run on.
func coreOf(state string) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		arguments := bytes.Split(text, []byte{0})
		if err != nil || len(arguments) < 2 || string(arguments[1]) != "instance" || !bytes.Contains(text, []byte(state)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		var cores unix.CPUSet
		if err := unix.SchedGetaffinity(pid, &cores); err != nil {
			return 0, fmt.Errorf("cores of the instance: %w", err)
		}
		for core := range len(cores) * 64 {
			if cores.IsSet(core) {
				return core, nil
			}
		}
	}
	return 0, errors.New("the instance's process was not found")
}
