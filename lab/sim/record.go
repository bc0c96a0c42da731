package sim

import "time"

// Window is the part of a run that is measured: [From, To).
type Window struct{ From, To time.Duration }

// Has reports whether at lies in the window.
func (w Window) Has(at time.Duration) bool { return w.From <= at && at < w.To }

// Overlap is how much of [from, to) lies in the window.
func (w Window) Overlap(from, to time.Duration) time.Duration {
	return max(0, min(to, w.To)-max(from, w.From))
}

// Counts is what became of requests.
type Counts struct {
	// Arrived are all, Cold those of them that found no ready instance. Served
	// were executed, Missed of these were late. Rejected were not executed. Woken
	// are not cold: they found parked instances, of which one then served.
	Arrived, Cold, Served, Missed, Rejected, Woken uint64
}

// Sub is what was counted since before.
func (c Counts) Sub(before Counts) Counts {
	return Counts{c.Arrived - before.Arrived, c.Cold - before.Cold, c.Served - before.Served, c.Missed - before.Missed, c.Rejected - before.Rejected, c.Woken - before.Woken}
}

// Waking counts the requests that found no ready instance but parked ones, for as long
// as it is open whether one of these serves before another has started.
type Waking struct{ all, measured uint64 }

// Add counts n such requests.
func (w *Waking) Add(n uint64, measured bool) {
	if w.all += n; measured {
		w.measured += n
	}
}

// Woken: a parked instance serves. The time waited is added to all and to the measured part.
func (w *Waking) Woken(all, measured *Counts) {
	all.Woken += w.all
	measured.Woken += w.measured
	*w = Waking{}
}

// Cold: none does.
func (w *Waking) Cold(all, measured *Counts) {
	all.Cold += w.all
	measured.Cold += w.measured
	*w = Waking{}
}

// Record is what was measured of one function's requests.
type Record struct {
	Counts
	Latency Histogram
	// Batches counts them by size.
	Batches []uint64
	// sums of what served requests waited and of executions.
	cold, queue, exec float64
}

// Executed is one request that was served: it waited, for an instance to become
// ready if it was cold, and its batch was executed. Latency is all of its way.
func (r *Record) Executed(waited, exec, latency time.Duration, cold bool) {
	r.Served++
	r.Latency.Add(latency, 1)
	r.exec += float64(exec)
	if cold {
		r.cold += float64(waited)
	} else {
		r.queue += float64(waited)
	}
}

// Flowed is many requests that fared alike.
func (r *Record) Flowed(n uint64, waited, exec, latency time.Duration, cold bool) {
	if n == 0 {
		return
	}
	r.Served += n
	r.Latency.Add(latency, n)
	r.exec += float64(exec) * float64(n)
	if cold {
		r.cold += float64(waited) * float64(n)
	} else {
		r.queue += float64(waited) * float64(n)
	}
}

// Batch counts n batches of a size.
func (r *Record) Batch(size int, n uint64) {
	if size >= len(r.Batches) {
		r.Batches = append(r.Batches, make([]uint64, size+1-len(r.Batches))...)
	}
	r.Batches[size] += n
}

// Means says what a served request's time consists of, on the mean.
func (r *Record) Means() (cold, queue, exec time.Duration) {
	if r.Served == 0 {
		return 0, 0, 0
	}
	n := float64(r.Served)
	return time.Duration(r.cold / n), time.Duration(r.queue / n), time.Duration(r.exec / n)
}
