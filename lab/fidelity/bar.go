package fidelity

import "time"

// bar tells how much of the comparison is done, in seconds of load.
type bar struct {
	tell        func(done, total int)
	done, total int
}

// during runs f, which counts for as long as d says, and tells of each second.
func (b *bar) during(d time.Duration, f func() error) error {
	if b.tell == nil {
		return f()
	}
	over := make(chan error, 1)
	go func() { over <- f() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := min(b.total, b.done+int(d/time.Second))
	for {
		select {
		case err := <-over:
			b.done = last
			b.tell(b.done, b.total)
			return err
		case <-tick.C:
			b.done = min(last, b.done+1)
			b.tell(b.done, b.total)
		}
	}
}
