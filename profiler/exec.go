package profiler

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Margin is what is added to a measured time to lower the risk of SLO
// violations (INFless §3.3: "increase the prediction offset by 10%").
const Margin = 0.10

// QuotaPeriod is the period of the CPU quota under which instances run. With
// it, [Profile.ExecTime] knows how long a throttled instance stands still.
const QuotaPeriod = 10 * time.Millisecond

// Noise bounds a P95: on a shared machine, one beyond this many times the
// median tells of the neighbours and not of the model.
const Noise = 2

// maxMargin is the widest margin of a point that can be believed: an operator
// that nothing resembles may take several times what was predicted.
const maxMargin = 100

// Validate says what is wrong with a profile that was read from elsewhere, or
// nil.
func (p *Profile) Validate() error {
	if len(p.Measurements) == 0 {
		return fmt.Errorf("profile of %.12s: no measurements", p.Model)
	}
	type point struct{ batch, threads int }
	seen := map[point]bool{}
	for _, m := range p.Measurements {
		at := point{m.Batch, m.Threads}
		if m.Batch < 1 || m.Threads < 1 {
			return fmt.Errorf("profile of %.12s: batch %d on %d threads", p.Model, m.Batch, m.Threads)
		}
		if seen[at] {
			return fmt.Errorf("profile of %.12s: batch %d on %d threads is there twice", p.Model, m.Batch, m.Threads)
		}
		seen[at] = true
		for _, t := range []float64{m.Median, m.P95, m.CPU} {
			if !(t >= 0 && t <= float64(time.Hour.Microseconds())) {
				return fmt.Errorf("profile of %.12s: batch %d on %d threads took %v µs", p.Model, m.Batch, m.Threads, t)
			}
		}
		if !(m.Margin >= 0 && m.Margin <= maxMargin) {
			return fmt.Errorf("profile of %.12s: batch %d on %d threads has a margin of %v", p.Model, m.Batch, m.Threads, m.Margin)
		}
		if m.Median == 0 || m.Runs < 1 && !m.Predicted {
			return fmt.Errorf("profile of %.12s: batch %d on %d threads was not measured", p.Model, m.Batch, m.Threads)
		}
	}
	return nil
}

// Usable reports whether the profile's times hold for engine on machine.
func (p *Profile) Usable(engine, machine string) bool {
	return p.Engine == engine && p.Machine == machine && p.Validate() == nil
}

// ExecTime is how long a batch takes at most, save for rare outliers, on an
// instance with a quota of so many millicores: f(b, c) of INFless §3.4. It is
// the 95th percentile and the point's margin ([Margin] if it has none of its
// own) on top, between measured batch sizes on the
// line through their neighbours, and it never decreases with the batch. What the instance
// does beside the engine ([Beside]) is added. It is
// false where the profile says nothing: for a batch above the largest
// measured, and for fewer threads than were measured. More threads than were
// measured count as the most that were.
//
// Under a quota of q cores per period P, n threads that compute without pause
// use up a period's q·P after at least q·P/n and then stand still for at most
// P − q·P/n. A batch that needs w of CPU time draws on ⌈w/(q·P)⌉ periods, the
// first of which may have been used up before it came, so
//
//	wall ≤ t + ⌈w/(q·P)⌉ · (P − q·P/n)
//
// with t the unthrottled time. On one thread t = w. For example w = 4 ms at
// 250m with P = 10 ms: 2.5 ms per period, 2 periods, 4 + 2·7.5 = 19 ms; at
// 500m 4 + 1·5 = 9 ms; at 1000m nothing stands still. The mean is only
// w/q = 16 and 8 ms, but an SLO is about the worst.
func (p *Profile) ExecTime(batch, millicores int) (time.Duration, bool) {
	if batch < 1 || millicores < 1 {
		return 0, false
	}
	threads, ok := p.threadsFor(millicores)
	if !ok {
		return 0, false
	}
	wall, work, ok := p.whole(batch, threads)
	if !ok {
		return 0, false
	}
	return throttled(wall, work, min(millicores, threads*1000), threads), true
}

// Table lists ExecTime for b = 1…maxBatch; it is shorter where the profile
// ends before.
func (p *Profile) Table(maxBatch, millicores int) []time.Duration {
	var table []time.Duration
	for b := 1; b <= maxBatch; b++ {
		t, ok := p.ExecTime(b, millicores)
		if !ok {
			break
		}
		table = append(table, t)
	}
	return table
}

// throttled is the bound of ExecTime, of wall and work in µs.
func throttled(wall, work float64, millicores, threads int) time.Duration {
	period := float64(QuotaPeriod.Microseconds())
	quota := period * float64(millicores) / 1000
	still := max(0, period-quota/float64(threads))
	bound := wall + math.Ceil(work/quota)*still
	return time.Duration(math.Ceil(bound * float64(time.Microsecond)))
}

// MeanUnderQuota is how long batches take on average, in µs, that are executed
// one after another without a pause under a CPU quota: wall and work are a
// batch's unthrottled wall time and CPU time in µs. In the long run no more
// than millicores/1000 of CPU time can be had per unit of time, so
//
//	mean = max(wall, work · 1000/millicores)
//
// For example wall = work = 4 ms on one thread: 4·1000/250 = 16 ms at 250m, 8
// ms at 500m, 4 ms at 1000m. On two threads wall = 3 and work = 5 ms: 5·1000/1500
// = 3.33 ms at 1500m and 3 ms at 2000m, where work/2 = 2.5 ms would fit, but the
// batch itself takes 3. A single batch may be faster, on what an idle instance
// has not used of its quota, or slower (see [Profile.ExecTime]). Without a
// quota (0 millicores) it is wall.
func MeanUnderQuota(wall, work float64, millicores int) float64 {
	if millicores <= 0 {
		return wall
	}
	return max(wall, work*1000/float64(millicores))
}

// MeanTime is how long batches take on average on an instance with a quota of so many
// millicores that always has something to do: [MeanUnderQuota] of what ExecTime bounds. It
// is false where ExecTime is.
func (p *Profile) MeanTime(batch, millicores int) (time.Duration, bool) {
	if batch < 1 || millicores < 1 {
		return 0, false
	}
	threads, ok := p.threadsFor(millicores)
	if !ok {
		return 0, false
	}
	wall, work, ok := p.whole(batch, threads)
	if !ok {
		return 0, false
	}
	mean := MeanUnderQuota(wall, work, min(millicores, threads*1000))
	return time.Duration(math.Ceil(mean * float64(time.Microsecond))), true
}

// threadsFor is the measured thread count for a CPU share: one per core or
// part of a core (cluster.Config.Threads), as far as was measured.
func (p *Profile) threadsFor(millicores int) (int, bool) {
	wanted, best := (millicores+999)/1000, 0
	for _, m := range p.Measurements {
		if m.Threads <= wanted {
			best = max(best, m.Threads)
		}
	}
	return best, best > 0
}

// whole is at, with what the instance does beside the engine: one thread of it works then.
func (p *Profile) whole(batch, threads int) (wall, work float64, ok bool) {
	wall, work, ok = p.at(batch, threads)
	beside := p.Beside.of(batch)
	return wall + beside, work + beside, ok
}

// at interpolates the conservative wall time and CPU time in µs, margin
// included, of a batch on a measured thread count.
func (p *Profile) at(batch, threads int) (wall, work float64, ok bool) {
	var below, above *Measurement
	var belowWall, belowWork, aboveWall, aboveWork float64
	for _, m := range p.sorted(threads) {
		w, c := m.conservative()
		aboveWall, aboveWork, above = max(aboveWall, w), max(aboveWork, c), &m
		if m.Batch >= batch {
			break
		}
		belowWall, belowWork, below = aboveWall, aboveWork, above
	}
	if above == nil || above.Batch < batch {
		return 0, 0, false
	}
	if below == nil {
		return aboveWall, aboveWork, true
	}
	part := float64(batch-below.Batch) / float64(above.Batch-below.Batch)
	return belowWall + part*(aboveWall-belowWall), belowWork + part*(aboveWork-belowWork), true
}

// sorted lists the measurements on so many threads by batch.
func (p *Profile) sorted(threads int) []Measurement {
	var ms []Measurement
	for _, m := range p.Measurements {
		if m.Threads == threads {
			ms = append(ms, m)
		}
	}
	slices.SortFunc(ms, func(a, b Measurement) int { return a.Batch - b.Batch })
	return ms
}

// conservative is the measurement's wall time and CPU time in µs with the
// margin. One thread cannot need less CPU than it ran.
func (m Measurement) conservative() (wall, work float64) {
	margin := m.Margin
	if margin <= 0 {
		margin = Margin
	}
	wall = max(m.Median, min(m.P95, Noise*m.Median)) * (1 + margin)
	work = m.CPU * (1 + margin)
	if m.Threads == 1 {
		work = max(work, wall)
	}
	return wall, work
}
