package systems

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
)

// paced is an engine that looks at the load once in a period, as a monitor that counts
// requests does. In between it plans only if a request waits for a function without any
// instance. It does not see other waiting requests.
type paced struct {
	Scaler
	period time.Duration
	next   time.Time
	// seen has the functions as the engine sees them.
	seen []scaling.Function
}

// Scale plans when the period is over, or when a request waits for a first instance.
func (p *paced) Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan {
	if now.Before(p.next) && !slices.ContainsFunc(functions, WaitsForFirst) {
		return scaling.Plan{}
	}
	if !now.Before(p.next) {
		p.next = now.Add(p.period)
	}
	p.seen = p.seen[:0]
	for _, f := range functions {
		if WaitsForFirst(f) {
			f.Waiting = 1
		} else {
			f.Waiting = 0
		}
		p.seen = append(p.seen, f)
	}
	return p.Scaler.Scale(now, p.seen, nodes)
}

// WaitsForFirst reports whether a request waits for a function's first instance.
func WaitsForFirst(f scaling.Function) bool {
	return f.Waiting > 0 && !slices.ContainsFunc(f.Instances, func(in scaling.Running) bool {
		return in.State == cluster.Starting || in.State == cluster.Ready
	})
}
