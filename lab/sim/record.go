package sim

import "time"

// Window is the measured part of a run: [From, To).
type Window struct{ From, To time.Duration }

// Has reports whether at lies in the window.
func (w Window) Has(at time.Duration) bool { return w.From <= at && at < w.To }

// Overlap returns the time of [from, to) that lies in the window.
func (w Window) Overlap(from, to time.Duration) time.Duration {
	return max(0, min(to, w.To)-max(from, w.From))
}

// Counts are numbers of requests by their outcome.
type Counts struct {
	// Arrived is the number of all requests. Served were executed; Missed of these were
	// late. Rejected were not executed. Cold found no ready instance. Woken found only
	// parked instances, of which one then served; they are not in Cold.
	Arrived, Cold, Served, Missed, Rejected, Woken uint64
}

// Sub returns the counts since before.
func (c Counts) Sub(before Counts) Counts {
	return Counts{c.Arrived - before.Arrived, c.Cold - before.Cold, c.Served - before.Served, c.Missed - before.Missed, c.Rejected - before.Rejected, c.Woken - before.Woken}
}

// Waking counts the requests that found only parked instances. They become woken if one of
// these serves before a new instance, otherwise cold.
type Waking struct{ all, measured uint64 }

// Add counts n such requests.
func (w *Waking) Add(n uint64, measured bool) {
	if w.all += n; measured {
		w.measured += n
	}
}

// Woken adds the requests to the counts as woken: a parked instance serves.
func (w *Waking) Woken(all, measured *Counts) {
	all.Woken += w.all
	measured.Woken += w.measured
	*w = Waking{}
}

// Cold adds the requests to the counts as cold: no parked instance serves.
func (w *Waking) Cold(all, measured *Counts) {
	all.Cold += w.all
	measured.Cold += w.measured
	*w = Waking{}
}

// Record has the measurements of one function's requests.
type Record struct {
	Counts
	// Hasty counts those of Rejected that an instance could have executed in time, while it was idle.
	Hasty   uint64
	Latency Histogram
	// Batches counts batches by size.
	Batches []uint64
	// cold and queue are the sums of the waiting times of served requests, for an
	// instance and in the queue. exec is the sum of their executions.
	cold, queue, exec float64
}

// Executed adds one served request: its waiting time, the time of its batch's execution and
// its whole latency. If it was cold, it waited for an instance to become ready.
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

// Flowed adds n served requests with the same times.
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

// Batch adds n batches of a size.
func (r *Record) Batch(size int, n uint64) {
	if size >= len(r.Batches) {
		r.Batches = append(r.Batches, make([]uint64, size+1-len(r.Batches))...)
	}
	r.Batches[size] += n
}

// Means returns the mean times of a served request: waiting for an instance, in the queue,
// and executed.
func (r *Record) Means() (cold, queue, exec time.Duration) {
	if r.Served == 0 {
		return 0, 0, 0
	}
	n := float64(r.Served)
	return time.Duration(r.cold / n), time.Duration(r.queue / n), time.Duration(r.exec / n)
}
