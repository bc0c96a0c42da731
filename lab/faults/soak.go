package faults

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

const (
	// leastSoak is the shortest that has enough points for a line in each half.
	leastSoak = time.Minute
	// leastPiece and mostPiece bound the time that one point stands for: its p99 needs
	// requests, and histories are kept for so long.
	leastPiece, mostPiece = 4 * time.Second, time.Minute
	// pieces is how many points a half has where it is long enough.
	pieces = 30
)

// point is what one piece of a soak shows, at its end.
type point struct {
	// at is since the soak's beginning.
	at time.Duration
	held
	p99 float64
}

// held is the memory and the descriptors of the provider and of its instances with it.
type held struct {
	// mib is of all together. Pages that processes share count once.
	mib float64
	// provider is the memory of the provider alone, anonymous one only, in MiB: the pages of
	// its program are shared with the instances, so their part varies with the instances' number.
	provider float64
	// live is what the provider's latest garbage collection left, in MiB. Its other memory
	// also has what the runtime has not yet given back, which changes from minute to minute.
	live        float64
	instances   float64
	descriptors float64
}

// slope is that of the line through points which is nearest by least squares, per hour; 0
// if there are not two different times.
func slope(points []point, value func(p point) float64) float64 {
	var n, x, y, xx, xy float64
	for _, p := range points {
		h, v := p.at.Hours(), value(p)
		n, x, y, xx, xy = n+1, x+h, y+v, xx+h*h, xy+h*v
	}
	if d := n*xx - x*x; d > 1e-15 {
		return (n*xy - x*y) / d
	}
	return 0
}

// p99 is the 99th percentile of the latencies of requests that were answered at once, in
// ms, by nearest rank.
func (h *History) p99() float64 {
	var all []float64
	for i := range h.Requests {
		if r := &h.Requests[i]; !r.Async && len(r.Answers) > 0 && r.Answers[0].good() {
			all = append(all, rig.Milliseconds(r.Answers[0].At-r.Intended))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)*99+99)/100-1]
}

// shapes are the halves of a soak, with the part of the rate at a time of the half: the
// changing one goes from a tenth to all of it and back, ten times.
func shapes(half time.Duration) []struct {
	name  string
	shape func(at time.Duration) float64
} {
	changing := func(at time.Duration) float64 {
		return 0.55 - 0.45*math.Cos(2*math.Pi*10*at.Seconds()/half.Seconds())
	}
	return []struct {
		name  string
		shape func(at time.Duration) float64
	}{{"steady", nil}, {"changing", changing}}
}

// soak runs a steady and a changing load, half of the time each.
func (u *bench) soak(ctx context.Context, r *report.Report) error {
	half := u.Soak / 2
	piece := min(max(half/pieces, leastPiece), mostPiece)
	count := int(half / piece)
	began := time.Now()
	var sum total
	for i, phase := range shapes(half) {
		var points []point
		for n := range count {
			if u.Progress != nil {
				u.Progress(i*count+n, 2*count)
			}
			u.runs++
			recorder := u.callbacks.record(u.runs)
			shape := phase.shape
			if shape != nil {
				shape = func(at time.Duration) float64 { return phase.shape(time.Duration(n)*piece + at) }
			}
			first, targets := u.sources(recorder, u.rates, shape)
			from, err := recorder.drive(ctx, first, targets, piece, u.Seed+uint64(u.runs))
			if err != nil {
				return err
			}
			h := recorder.history(from)
			if err := h.write(u.history, "soak."+phase.name, u.runs); err != nil {
				return fmt.Errorf("--history: %w", err)
			}
			for i := range h.Requests {
				u.lags = append(u.lags, h.Requests[i].Sent-h.Requests[i].Intended)
			}
			during, outside := h.Shares(0, 0)
			sum.add(outcome{verdict: Check(h), during: during, outside: outside, recovered: true})
			p := point{at: time.Since(began), p99: h.p99()}
			if p.held, err = u.held(ctx); err != nil {
				return err
			}
			points = append(points, p)
		}
		// The first ones are of a provider that gets to know the load.
		points = points[len(points)/10:]
		last, note := points[len(points)-1], fmt.Sprintf("least squares over %d points, %v apart, without the first tenth", len(points), piece)
		prefix := "soak." + phase.name + "."
		r.Add(prefix+"memory_mib_per_hour", slope(points, func(p point) float64 { return p.mib }), "MiB/h", fmt.Sprintf("of provider and instances, %.0f MiB at last; %s", last.mib, note))
		r.Add(prefix+"provider_mib_per_hour", slope(points, func(p point) float64 { return p.provider }), "MiB/h", fmt.Sprintf("anonymous memory of the provider alone, %.0f MiB at last", last.provider))
		r.Add(prefix+"live_mib_per_hour", slope(points, func(p point) float64 { return p.live }), "MiB/h", fmt.Sprintf("what a garbage collection of the provider leaves, %.1f MiB at last", last.live))
		least, most := instances(points)
		r.Add(prefix+"mib_per_instance_per_hour", slope(points, func(p point) float64 { return (p.mib - p.provider) / max(p.instances, 1) }), "MiB/h", fmt.Sprintf("of all but that, by instance; %.0f to %.0f instances, %.0f at last", least, most, last.instances))
		r.Add(prefix+"descriptors_per_hour", slope(points, func(p point) float64 { return p.descriptors }), "1/h", fmt.Sprintf("of the same, %.0f at last", last.descriptors))
		r.Add(prefix+"p99_ms_per_hour", slope(points, func(p point) float64 { return p.p99 }), "ms/h", fmt.Sprintf("%.1f ms at last", last.p99))
	}
	if u.Progress != nil {
		u.Progress(2*count, 2*count)
	}
	v := sum.verdict
	r.Add("soak.lost", float64(v.Lost), "requests", fmt.Sprintf("of %d accepted, never answered or called back", v.Accepted))
	r.Add("soak.wrong", float64(v.Wrong), "answers", "another's, or one too many")
	r.Add("soak.unbounded", float64(v.Unbounded), "requests", "answered later than the SLO and a second")
	r.Add("soak.within_slo_pct", sum.outside.percent(), "%", fmt.Sprintf("of %d requests", sum.outside.all))
	u.reportLag(r)
	return nil
}

// instances returns the least and the largest number of instances in the points.
func instances(points []point) (least, most float64) {
	least = math.Inf(1)
	for _, p := range points {
		least, most = min(least, p.instances), max(most, p.instances)
	}
	return least, most
}

// held is what the provider and all of its instances hold now.
func (u *bench) held(ctx context.Context) (held, error) {
	var h held
	live, err := u.world.now().Metric(ctx, "go_gc_heap_live_bytes")
	if err != nil {
		return h, err
	}
	h.live = live / (1 << 20)
	records, err := u.world.records()
	if err != nil {
		return h, err
	}
	all, err := processes()
	if err != nil {
		return h, err
	}
	provider := u.world.now().Process.Pid
	pids := append(descendants(all, provider), provider)
	for _, r := range records {
		pids = append(append(pids, r.Process.PID), descendants(all, r.Process.PID)...)
	}
	h.instances = float64(len(records))
	slices.Sort(pids)
	for _, pid := range slices.Compact(pids) {
		mapped, err := rig.Mapped(pid)
		if err != nil {
			continue // It has ended meanwhile.
		}
		h.mib += mapped["Pss"]
		if pid == provider {
			h.provider = mapped["Pss_Anon"]
		}
		if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
			h.descriptors += float64(len(fds))
		}
	}
	return h, nil
}
