package process

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// boundsEnv is the variable by which a process learns its [Bounds].
const boundsEnv = "FAAS_INFER_BOUNDS"

// Bounds are what a process of this program may take, and each that it starts. A field is 0 for no
// bound.
type Bounds struct {
	// Memory is in bytes, of private memory that the process can write to (RLIMIT_DATA): an
	// allocation beyond it fails.
	Memory int64
	// CPU is processor time, in whole seconds (RLIMIT_CPU): the kernel kills the process at its end.
	CPU time.Duration
}

// Env returns the entry of a process's environment that makes [BindSelf] bind it.
func (b Bounds) Env() string {
	return fmt.Sprintf("%s=%d %d", boundsEnv, b.Memory, b.seconds())
}

func (b Bounds) seconds() uint64 { return uint64((b.CPU + time.Second - 1) / time.Second) }

// BindSelf binds this process if its environment says so. The process does this itself because
// its parent could only do it when it already runs. The processes that it starts inherit the bounds.
func BindSelf() error {
	var memory, seconds uint64
	text, given := os.LookupEnv(boundsEnv)
	if !given {
		return nil
	}
	if _, err := fmt.Sscanf(text, "%d %d", &memory, &seconds); err != nil {
		return fmt.Errorf("%s is %q: %w", boundsEnv, text, err)
	}
	for resource, bound := range map[int]uint64{unix.RLIMIT_DATA: memory, unix.RLIMIT_CPU: seconds} {
		if bound == 0 {
			continue
		}
		if err := lower(resource, bound); err != nil {
			return err
		}
	}
	return os.Unsetenv(boundsEnv)
}

// lower sets a limit of this process unless it has a lower one.
func lower(resource int, bound uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return fmt.Errorf("read limit %d of this process: %w", resource, err)
	}
	now.Cur, now.Max = min(now.Cur, bound), min(now.Max, bound)
	if err := unix.Setrlimit(resource, &now); err != nil {
		return fmt.Errorf("set limit %d of this process to %d: %w", resource, bound, err)
	}
	return nil
}
