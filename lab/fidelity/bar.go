package fidelity

import "time"

// bar reports the progress of the comparison, in seconds of load.
type bar struct {
	report      func(done, total int)
	done, total int
}

// during runs f and reports each second. f counts as d, however long it takes.
func (b *bar) during(d time.Duration, f func() error) error {
	if b.report == nil {
		return f()
	}
	over := make(chan error, 1)
	go func() { over <- f() }()
	tick := time.Tick(time.Second)
	last := min(b.total, b.done+int(d/time.Second))
	for {
		select {
		case err := <-over:
			b.done = last
			b.report(b.done, b.total)
			return err
		case <-tick:
			b.done = min(last, b.done+1)
			b.report(b.done, b.total)
		}
	}
}
