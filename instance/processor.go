package instance

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// processor divides the CPU time that this process uses between the engine and all that is
// done beside it: bodies are read and written, and requests come and go.
type processor struct {
	mu sync.Mutex
	// engine is what the engine has used, told what batches were told of the rest.
	engine, told time.Duration
	// open is how many batches are here.
	open int
}

// begin notes that a batch has come. The process's work while none was here counts for
// none.
func (p *processor) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open++; p.open == 1 {
		p.told = used(unix.CLOCK_PROCESS_CPUTIME_ID) - p.engine
	}
}

// end notes that a batch is done, and returns what was used beside the engine since the
// one before was, or since it came.
func (p *processor) end() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	all := used(unix.CLOCK_PROCESS_CPUTIME_ID) - p.engine
	beside := max(0, all-p.told)
	p.told = all
	return beside
}

// running calls an engine on so many threads. On one it computes on the caller's own, so
// that what others do meanwhile is not the engine's.
func (p *processor) running(threads int, engine func()) {
	clock := int32(unix.CLOCK_PROCESS_CPUTIME_ID)
	if threads == 1 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		clock = unix.CLOCK_THREAD_CPUTIME_ID
	}
	before := used(clock)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.engine += used(clock) - before
	}()
	engine()
}

// used is what a clock of the CPU says.
func used(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil { // It fails for wrong arguments only.
		panic(err)
	}
	return time.Duration(t.Nano())
}
