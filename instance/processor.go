package instance

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// processor splits the process's CPU time into the engine's and the rest. The rest
// reads and writes bodies, and decodes and encodes requests.
type processor struct {
	mu sync.Mutex
	// engine is the CPU time that the engine has used. reported is the rest that end
	// has already returned.
	engine, reported time.Duration
	// open is the number of batches between begin and end.
	open int
	// runs is the number of runs that the process's clock measures now. since is what it
	// showed when the first of them began: runs at the same time count once.
	runs  int
	since time.Duration
}

// begin records the arrival of a batch. CPU time that the process used while it had no
// batch counts for none.
func (p *processor) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open++; p.open == 1 {
		p.reported = p.rest()
	}
}

// rest returns the CPU time that the process has used outside the engine. The caller holds mu.
func (p *processor) rest() time.Duration {
	now := used(unix.CLOCK_PROCESS_CPUTIME_ID)
	if p.runs > 0 {
		now = p.since
	}
	return now - p.engine
}

// end records the end of a batch. It returns the CPU time used outside the engine since
// the previous end, or since begin if no other batch was open.
func (p *processor) end() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	all := p.rest()
	beside := max(0, all-p.reported)
	p.reported = all
	return beside
}

// running calls engine and adds its CPU time. An engine with one thread computes on the
// caller's thread, so running reads that thread's clock. With more threads, or threads
// unknown (0), it reads the process's clock, which includes whatever else the process does
// meanwhile.
func (p *processor) running(threads int, engine func()) {
	if threads == 1 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before := used(unix.CLOCK_THREAD_CPUTIME_ID)
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.engine += used(unix.CLOCK_THREAD_CPUTIME_ID) - before
		}()
		engine()
		return
	}
	p.mu.Lock()
	if p.runs++; p.runs == 1 {
		p.since = used(unix.CLOCK_PROCESS_CPUTIME_ID)
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.runs--; p.runs == 0 {
			p.engine += used(unix.CLOCK_PROCESS_CPUTIME_ID) - p.since
		}
	}()
	engine()
}

// used reads a CPU clock.
func used(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil { // It fails only for wrong arguments.
		panic(err)
	}
	return time.Duration(t.Nano())
}
