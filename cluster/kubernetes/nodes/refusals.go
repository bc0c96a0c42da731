package nodes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
)

const (
	// firstRefusal is how long the first refusal of a node counts. Each further one counts
	// twice as long as the one before, up to longestRefusal. A namespace's refusal is tried
	// again without a pod, so it counts for longestQuota at most.
	firstRefusal   = time.Second
	longestRefusal = 5 * time.Minute
	longestQuota   = 30 * time.Second
	// maxRow is how many different nodes may refuse a function in a row, without an instance that
	// becomes ready. Then the function is at fault rather than the nodes, and it gets none for a
	// while: of 1,000 nodes there would always be one to try.
	maxRow = 5
	// refusalMemory is how long after its end a refusal makes the next one count longer.
	refusalMemory = 10 * time.Minute
)

// Refusals remembers which nodes and namespaces do not take which functions' pods: kubelets
// reject pods for reasons that no node shows, and the API server rejects those beyond a quota.
// A refusal ends after a while, when its node changes, when a pod of its namespace goes, and
// with the function's revision. Its zero value is empty. It is not safe for concurrent use.
type Refusals struct{ functions map[string]*refusals }

// refusals are those of one revision of a function.
type refusals struct {
	revision uint64
	// nodes has them by node; quota is the namespace's. all is that of all nodes.
	nodes      map[string]refusal
	quota, all refusal
	// row are the first nodes, up to maxRow different ones, that refused since an instance was
	// ready last.
	row []string
}

// refusal is one node's or namespace's.
type refusal struct {
	why   string
	until time.Time
	// ended: something has changed, so it does not count until its time.
	ended bool
	// count is how many there were in a row.
	count int
}

func (r refusal) holds(now time.Time) bool { return !r.ended && now.Before(r.until) }

// again returns the next refusal.
func (r refusal) again(now time.Time, why string, longest time.Duration) refusal {
	if now.Sub(r.until) > refusalMemory {
		r.count = 0
	}
	return refusal{why: why, until: now.Add(backoff.Pause(r.count+1, firstRefusal, longest)), count: r.count + 1}
}

// of returns a function's refusals, without those of an earlier revision.
func (r *Refusals) of(function string, revision uint64) *refusals {
	if r.functions == nil {
		r.functions = map[string]*refusals{}
	}
	f := r.functions[function]
	if f == nil || f.revision < revision {
		f = &refusals{revision: revision, nodes: map[string]refusal{}}
		r.functions[function] = f
	}
	return f
}

// Node takes in that a node has refused a pod, and forgets refusals that are long over.
func (r *Refusals) Node(now time.Time, function string, revision uint64, node, why string) {
	for name, f := range r.functions {
		maps.DeleteFunc(f.nodes, func(_ string, x refusal) bool { return now.Sub(x.until) > refusalMemory })
		if len(f.nodes) == 0 && now.Sub(f.quota.until) > refusalMemory && now.Sub(f.all.until) > refusalMemory {
			delete(r.functions, name)
		}
	}
	if f := r.of(function, revision); f.revision == revision {
		f.nodes[node] = f.nodes[node].again(now, why, longestRefusal)
		f.inRow(now, node, why)
	}
}

// inRow takes in that one node more has refused. Refusals while the function pauses are of pods
// that were there before, so they do not make the pause longer.
func (f *refusals) inRow(now time.Time, node, why string) {
	if len(f.row) < maxRow && !slices.Contains(f.row, node) {
		f.row = append(f.row, node)
	}
	if len(f.row) == maxRow && !f.all.holds(now) {
		f.all = f.all.again(now, why, longestRefusal)
	}
}

// Namespace takes in that the API server has refused a pod, for example because of a quota.
func (r *Refusals) Namespace(now time.Time, function string, revision uint64, why string) {
	if f := r.of(function, revision); f.revision == revision {
		f.quota = f.quota.again(now, why, longestQuota)
	}
}

// Has reports whether there are refusals of the function's pods.
func (r *Refusals) Has(function string) bool { return r.functions[function] != nil }

// Admitted forgets the refusals of a node, on which an instance of the function has become
// ready, those of the namespace and that of all nodes.
func (r *Refusals) Admitted(function, node string) {
	if f := r.functions[function]; f != nil {
		delete(f.nodes, node)
		f.row, f.all, f.quota = nil, refusal{}, refusal{}
		if len(f.nodes) == 0 {
			delete(r.functions, function)
		}
	}
}

// Changed ends the refusals of a node that has changed. The next one still counts longer: many
// changes do not help.
func (r *Refusals) Changed(node string) {
	for _, f := range r.functions {
		if x, ok := f.nodes[node]; ok {
			x.ended = true
			f.nodes[node] = x
		}
	}
}

// Freed ends the refusals of a namespace in which a pod has gone, because its quota has room.
func (r *Refusals) Freed(namespace string) {
	for function, f := range r.functions {
		if strings.HasSuffix(function, "."+namespace) {
			f.quota.ended = true
		}
	}
}

// Admitting returns those of the names of nodes that do not refuse the function's pods, and
// which do and why: "" if none does. It returns no name if the namespace refuses them, or so many
// nodes did in a row that the function pauses.
func (r *Refusals) Admitting(now time.Time, function string, revision uint64, names []string) (left []string, why string) {
	f := r.functions[function]
	if f == nil || f.revision != revision {
		return names, ""
	}
	if f.quota.holds(now) {
		return []string{}, fmt.Sprintf("the cluster refuses its pods: %s; tried again soon", f.quota.why)
	}
	if f.all.holds(now) {
		return []string{}, fmt.Sprintf("its pods are refused by %s in a row (%s); no other node gets one for a while", listed(f.row), f.all.why)
	}
	refuses := map[string][]string{} // The nodes by what they say: a fleet may refuse as one.
	left = make([]string, 0, len(names))
	for _, name := range names {
		if x := f.nodes[name]; x.holds(now) {
			refuses[x.why] = append(refuses[x.why], name)
		} else {
			left = append(left, name)
		}
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(refuses)) {
		parts = append(parts, fmt.Sprintf("%s (%s)", listed(refuses[why]), why))
	}
	if parts == nil {
		return names, ""
	}
	return left, "its pods are refused by " + strings.Join(parts, ", ") + "; tried again later"
}

// listed names nodes, of many the first ones.
func listed(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("node %s and %d others", strings.Join(names[:most], ", "), len(names)-most)
	}
	return "node " + strings.Join(names, ", ")
}
