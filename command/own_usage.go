package command

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// ownUse measures the CPU time of this process and of its helpers, such as the gateway,
// which bring requests in.
type ownUse struct {
	mu      sync.Mutex
	helpers []process.Identity
	// last is the last reading. It keeps the sum from falling when a helper ends.
	last time.Duration
}

// Add counts a process that this one has started as a helper.
func (o *ownUse) Add(pid int) {
	id, err := process.Identify(pid)
	if err != nil {
		return // It has ended already.
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.helpers = append(o.helpers, id)
}

// CPU returns the CPU time that all of them have used.
func (o *ownUse) CPU() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		return o.last
	}
	sum := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	for _, id := range o.helpers {
		if cpu, _, err := process.Usage(id); err == nil {
			sum += cpu
		}
	}
	o.last = max(o.last, sum)
	return o.last
}
