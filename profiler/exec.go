package profiler

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Margin is the part that is added to a measured time to lower the risk of SLO
// violations (INFless §3.3: "increase the prediction offset by 10%").
const Margin = 0.10

// QuotaPeriod is the period of the CPU quota under which instances run. With
// it, [Profile.ExecTime] knows how long a throttled instance stands still.
const QuotaPeriod = 10 * time.Millisecond

// Noise is the maximum of a P95, in medians. On a shared machine a P95 above it comes
// from other programs and not from the model.
const Noise = 2

// maxMargin is the largest valid margin of a point. An operator unlike all measured
// ones may take several times its prediction.
const maxMargin = 100

// Validate returns an error for a profile that cannot be right, for example a damaged
// one.
func (p *Profile) Validate() error {
	if len(p.Measurements) == 0 {
		return fmt.Errorf("profile of %.12s: no measurements", p.Model)
	}
	if !(p.Yardstick >= 0 && p.Yardstick <= float64(time.Hour.Microseconds())) {
		return fmt.Errorf("profile of %.12s: its yardstick took %v µs", p.Model, p.Yardstick)
	}
	if p.BySize != nil {
		if wrong := p.BySize.wrong(); wrong != "" {
			return fmt.Errorf("profile of %.12s: %s", p.Model, wrong)
		}
	}
	type point struct{ batch, threads, gpu int }
	seen := map[point]bool{}
	for _, m := range p.Measurements {
		at := point{m.Batch, m.Threads, m.GPU}
		if wrong := m.wrong(); wrong != "" {
			return fmt.Errorf("profile of %.12s: %v %s", p.Model, m, wrong)
		}
		if seen[at] {
			return fmt.Errorf("profile of %.12s: %v appears twice", p.Model, m)
		}
		seen[at] = true
	}
	return nil
}

// wrong is what cannot be right of the measurement, "" if nothing is.
func (m Measurement) wrong() string {
	if m.Batch < 1 || m.Threads < 1 || m.GPU < 0 || m.GPU > 100 || m.GPU > 0 && m.Threads != 1 {
		return "does not exist"
	}
	for _, t := range []float64{m.Median, m.P95, m.CPU, m.In, m.Compute, m.Out} {
		if !(t >= 0 && t <= float64(time.Hour.Microseconds())) {
			return fmt.Sprintf("took %v µs", t)
		}
	}
	switch {
	case !(m.Margin >= 0 && m.Margin <= maxMargin):
		return fmt.Sprintf("has a margin of %v; it must be from 0 to %d", m.Margin, maxMargin)
	case m.DeviceMemory < 0 || m.DeviceMemory > 1<<50:
		return fmt.Sprintf("holds %d bytes of the GPU", m.DeviceMemory)
	case m.Median == 0 || m.Runs < 1 && !m.Predicted:
		return "was not measured"
	}
	return ""
}

// String names the measured point.
func (m Measurement) String() string {
	if m.GPU != 0 {
		return fmt.Sprintf("batch %d on %d %% of a GPU", m.Batch, m.GPU)
	}
	return fmt.Sprintf("batch %d on %d threads", m.Batch, m.Threads)
}

// Usable reports whether the profile is valid and is for engine on machine.
func (p *Profile) Usable(engine, machine string) bool {
	return p.Engine == engine && p.Machine == machine && p.Validate() == nil
}

// ExecTime is the maximum time of a batch, except for rare outliers, on an instance
// with this share, whose CPU part is a quota: f(b, c, g) of INFless §3.4. It is the 95th
// percentile plus the point's margin, which is [Margin] by default. Between measured
// batch sizes it is on the line through the neighbours. It never decreases with the
// batch size. It includes the instance's time outside the engine ([Beside]).
//
// ExecTime is false for a batch above the largest measured one, and for a share of
// fewer threads than any measured one. A share of more threads than measured counts
// as the largest measured number. For shares of a GPU see [Profile.onDevice].
//
// Under a quota of q cores per period P, n threads that compute without pause
// use up a period's q·P after at least q·P/n and then stand still for at most
// P − q·P/n. A batch that needs w of CPU time draws on ⌈w/(q·P)⌉ periods. An
// earlier batch may have used up the first of these, so
//
//	wall ≤ t + ⌈w/(q·P)⌉ · (P − q·P/n)
//
// with t the unthrottled time. On one thread t = w. For example w = 4 ms at
// 250m with P = 10 ms: 2.5 ms per period, 2 periods, 4 + 2·7.5 = 19 ms; at
// 500m 4 + 1·5 = 9 ms; at 1000m nothing stands still. The mean is only
// w/q = 16 and 8 ms, but an SLO needs the worst case.
func (p *Profile) ExecTime(batch int, s Share) (time.Duration, bool) {
	wall, work, threads, ok := p.unthrottled(batch, s)
	if !ok {
		return 0, false
	}
	if s.GPU > 0 && s.CPU >= p.quotaFor(batch, s.GPU) {
		return duration(wall), true
	}
	return throttled(wall, work, min(s.CPU, threads*1000), threads), true
}

// unthrottled is the time in µs of a batch on the share without a quota, its CPU time in µs,
// and the number of threads that use it.
func (p *Profile) unthrottled(batch int, s Share) (wall, work float64, threads int, ok bool) {
	if batch < 1 || s.CPU < 1 {
		return 0, 0, 0, false
	}
	if s.GPU > 0 {
		wall, work, ok = p.onDevice(batch, s.GPU)
		threads = 1
	} else if threads, ok = p.threadsFor(s.CPU); ok {
		wall, work, ok = p.at(batch, threads)
	}
	// Outside the engine one thread works.
	beside := p.Beside.of(batch)
	return wall + beside, work + beside, threads, ok
}

// Table lists ExecTime for b = 1…maxBatch. It is shorter if the profile ends before.
func (p *Profile) Table(maxBatch int, s Share) []time.Duration {
	var table []time.Duration
	for b := 1; b <= maxBatch; b++ {
		t, ok := p.ExecTime(b, s)
		if !ok {
			break
		}
		table = append(table, t)
	}
	return table
}

// throttled is the bound of [Profile.ExecTime] for wall time and CPU time in µs.
func throttled(wall, work float64, millicores, threads int) time.Duration {
	period := float64(QuotaPeriod.Microseconds())
	quota := period * float64(millicores) / 1000
	still := max(0, period-quota/float64(threads))
	return duration(wall + math.Ceil(work/quota)*still)
}

// duration converts from µs. It rounds up.
func duration(us float64) time.Duration {
	return time.Duration(math.Ceil(us * float64(time.Microsecond)))
}

// MeanUnderQuota is the mean time in µs of batches that run one after another under a
// CPU quota. wall and work are a batch's unthrottled wall time and CPU time in µs. In
// the long run the quota gives at most millicores/1000 of CPU time per unit of time,
// so
//
//	mean = max(wall, work · 1000/millicores)
//
// For example wall = work = 4 ms on one thread: 4·1000/250 = 16 ms at 250m, 8
// ms at 500m, 4 ms at 1000m. On two threads wall = 3 and work = 5 ms: 5·1000/1500
// = 3.33 ms at 1500m and 3 ms at 2000m, where work/2 = 2.5 ms would fit, but the
// batch itself takes 3. A single batch may be faster, on the unused quota of an idle
// instance, or slower (see [Profile.ExecTime]). Without a quota (0 millicores) it is
// wall.
func MeanUnderQuota(wall, work float64, millicores int) float64 {
	if millicores <= 0 {
		return wall
	}
	return max(wall, work*1000/float64(millicores))
}

// MeanTime is the mean time of a batch on a busy instance with this share:
// [MeanUnderQuota] of the times that [Profile.ExecTime] bounds. It is false if ExecTime is.
func (p *Profile) MeanTime(batch int, s Share) (time.Duration, bool) {
	wall, work, threads, ok := p.unthrottled(batch, s)
	return duration(MeanUnderQuota(wall, work, min(s.CPU, threads*1000))), ok
}

// threadsFor is the thread count for a CPU share: in each instance one per core or part of a
// core (cluster.Config.Threads), or the largest measured number below that.
func (p *Profile) threadsFor(millicores int) (int, bool) {
	n := p.Computing()
	wanted, best := n*((millicores/n+999)/1000), 0
	for _, m := range p.Measurements {
		if m.GPU == 0 && m.Threads <= wanted {
			best = max(best, m.Threads)
		}
	}
	return best, best > 0
}

// at interpolates the conservative wall time and CPU time of a batch, in µs with the
// margin, on a measured thread count.
func (p *Profile) at(batch, threads int) (wall, work float64, ok bool) {
	return between(p.sorted(threads, 0), batch)
}

// between interpolates the conservative wall time and CPU time of a batch, in µs with the
// margin, among the measurements of one share, sorted by batch.
func between(sorted []Measurement, batch int) (wall, work float64, ok bool) {
	var below, above *Measurement
	var belowWall, belowWork, aboveWall, aboveWork float64
	for _, m := range sorted {
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

// sorted lists the measurements on this number of threads and share of a GPU by batch.
func (p *Profile) sorted(threads, gpu int) []Measurement {
	var ms []Measurement
	for _, m := range p.Measurements {
		if m.Threads == threads && m.GPU == gpu {
			ms = append(ms, m)
		}
	}
	slices.SortFunc(ms, func(a, b Measurement) int { return a.Batch - b.Batch })
	return ms
}

// conservative is the measurement's wall time and CPU time in µs, with the margin. On
// one thread, without a GPU, the CPU time is at least the wall time.
func (m Measurement) conservative() (wall, work float64) {
	margin := m.Margin
	if margin <= 0 {
		margin = Margin
	}
	wall = max(m.Median, min(m.P95, Noise*m.Median)) * (1 + margin)
	work = m.CPU * (1 + margin)
	if m.Threads == 1 && m.GPU == 0 {
		work = max(work, wall)
	}
	return wall, work
}
