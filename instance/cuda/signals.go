package cuda

import (
	"fmt"
	"syscall"
	"unsafe"
)

// action is the kernel's struct sigaction on amd64 and arm64 (rt_sigaction(2)).
type action struct{ handler, flags, restorer, mask uintptr }

const (
	// lastSignal is the highest signal number on Linux.
	lastSignal = 64
	// ignored is SIG_IGN. Below it is SIG_DFL, no handler.
	ignored = 1
)

// keepSignals records the handlers of all signals; restore sets them again. CUDA's
// libraries replace Go's handlers with ones that do not use the alternate stack that Go
// needs. The next signal, such as the SIGTERM that stops an instance, would crash the
// process. Signals without a handler are left alone: Go may get one for them meanwhile.
func keepSignals() (restore func() error) {
	var before [lastSignal + 1]action
	known := [lastSignal + 1]bool{}
	for n := range before {
		known[n] = n > 0 && sigaction(n, nil, &before[n]) == nil && before[n].handler > ignored
	}
	return func() error {
		for n, ok := range known {
			var now action
			if !ok || sigaction(n, nil, &now) != nil || now == before[n] {
				continue
			}
			if err := sigaction(n, &before[n], nil); err != nil {
				return fmt.Errorf("signal %d: %w", n, err)
			}
		}
		return nil
	}
}

func sigaction(n int, set, get *action) error {
	_, _, err := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), unsafe.Sizeof(set.mask), 0, 0)
	if err != 0 {
		return err
	}
	return nil
}
