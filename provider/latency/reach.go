package latency

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
)

// Reach says up to which length of its requests a function's objective holds by a profile, on one
// core and on the most that an instance may have: "p99 ≤ 100ms up to 230 tokens on one core, 380 on
// 2 cores". It is "" if the requests have one size, or if the times by size are unknown.
func (r Rules) Reach(f *provider.Function, p *profiler.Profile) string {
	if p.BySize == nil || p.BySize.Times == nil {
		return ""
	}
	allowed := r.shares(f, p)
	if len(allowed) == 0 {
		return ""
	}
	tried := []int{slices.Max(allowed)}
	if slices.Contains(allowed, 1000) && tried[0] > 1000 {
		tried = []int{1000, tried[0]}
	}
	var all []string
	unit := " " + p.BySize.Unit
	for _, share := range tried {
		length, whole := p.Reach(func(sized *profiler.Profile) bool {
			return r.Usable(f, sized.Table(1, profiler.Share{CPU: share})) > 0
		})
		text := fmt.Sprintf("up to %d%s on %s", length, unit, cores(share))
		switch {
		case length == 0:
			text = fmt.Sprintf("for no length on %s, where %d%s take %v", cores(share), p.BySize.Times[0].Length, unit, shortest(p, share).Round(time.Millisecond/10))
		case whole:
			text += ", the longest that was tried"
		}
		all, unit = append(all, strings.TrimPrefix(text, prefixOf(all))), ""
		if whole {
			break
		}
	}
	return fmt.Sprintf("p%g ≤ %v %s", f.Inference.Percentile, f.Inference.SLO, strings.Join(all, ", "))
}

// prefixOf is what the next share's text need not repeat.
func prefixOf(before []string) string {
	if len(before) > 0 && strings.HasPrefix(before[0], "up to ") {
		return "up to "
	}
	return ""
}

// shortest is the time of one request of the smallest known size.
func shortest(p *profiler.Profile, share int) time.Duration {
	exec, _ := p.Sized(p.BySize.Times[0].Elements).ExecTime(1, profiler.Share{CPU: share})
	return exec
}

// cores writes a CPU share in millicores in words.
func cores(millicores int) string {
	switch {
	case millicores == 1000:
		return "one core"
	case millicores%1000 == 0:
		return fmt.Sprintf("%d cores", millicores/1000)
	}
	return fmt.Sprintf("%dm", millicores)
}
