package nodes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// refuser is a function's refusals at a time.
type refuser struct {
	Refusals
	t   *testing.T
	now time.Time
}

const function, revision = "m.team", 7

// admits compares the nodes that take the function's pods after a while.
func (r *refuser) admits(after time.Duration, want ...string) (why string) {
	r.t.Helper()
	r.now = r.now.Add(after)
	left, why := r.Admitting(r.now, function, revision, []string{"a", "b"})
	if !slices.Equal(left, want) {
		r.t.Errorf("%v later %v take its pods, not %v: %s", after, left, want, why)
	}
	return why
}

// A node that refuses a pod gets none of the function's for a while, longer each time, and the
// others do. The reason names it. Other functions are not concerned.
func TestRefusals(t *testing.T) {
	r := &refuser{t: t, now: time.Unix(0, 0)}
	if why := r.admits(0, "a", "b"); why != "" || r.Has(function) {
		t.Errorf("nothing is refused: %q", why)
	}
	r.Node(r.now, function, revision, "a", "TopologyAffinityError")
	if why := r.admits(firstRefusal-1, "b"); !strings.Contains(why, "node a (TopologyAffinityError)") {
		t.Errorf("it says %q", why)
	}
	if left, why := r.Admitting(r.now, "other.team", revision, []string{"a"}); len(left) != 1 || why != "" {
		t.Errorf("another function gets %v: %s", left, why)
	}
	r.admits(1, "a", "b")
	r.Node(r.now, function, revision, "a", "TopologyAffinityError")
	r.admits(2*firstRefusal-1, "b")
	r.admits(1, "a", "b")
	for range 20 { // It does not grow beyond the longest.
		r.Node(r.now, function, revision, "a", "TopologyAffinityError")
	}
	r.admits(longestRefusal-1, "b")
	r.admits(1, "a", "b")
	// It is forgotten in the end.
	r.now = r.now.Add(refusalMemory + 1)
	r.Node(r.now, function, revision, "a", "OutOfcpu")
	r.admits(firstRefusal, "a", "b")
	r.Node(r.now.Add(refusalMemory+firstRefusal), "other.team", 1, "b", "OutOfcpu")
	if r.Has(function) {
		t.Error("refusals that are over are kept")
	}
}

// A change of the node, a later revision of the function, and an instance that starts there end
// a refusal. An earlier revision's does not count.
func TestRefusalsEnd(t *testing.T) {
	for name, end := range map[string]func(*refuser){
		"the node changes":       func(r *refuser) { r.Changed("a") },
		"an instance is ready":   func(r *refuser) { r.Admitted(function, "a") },
		"a new revision":         func(r *refuser) { r.Node(r.now, function, revision+1, "a", "x") },
		"it was an earlier one":  func(r *refuser) { r.functions[function].revision-- },
		"nothing, but time":      func(r *refuser) { r.now = r.now.Add(firstRefusal) },
		"all of it is forgotten": func(r *refuser) { r.functions = nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := &refuser{t: t, now: time.Unix(0, 0)}
			r.Node(r.now, function, revision, "a", "NodeAffinity")
			r.Changed("b")
			r.Admitted(function, "b")
			r.Freed("team")
			r.admits(0, "b")
			end(r)
			r.admits(0, "a", "b")
		})
	}
	r := &refuser{t: t, now: time.Unix(0, 0)}
	r.Node(r.now, function, revision, "a", "NodeAffinity")
	r.Changed("a")
	r.Node(r.now, function, revision, "a", "NodeAffinity")
	r.admits(firstRefusal, "b") // A node that changes all the time is not tried all the time.
}

// A quota keeps the function from all nodes, and not other namespaces. It is over when a pod
// of its namespace goes.
func TestRefusedByTheNamespace(t *testing.T) {
	r := &refuser{t: t, now: time.Unix(0, 0)}
	r.Namespace(r.now, function, revision, "exceeded quota: cpus")
	if why := r.admits(0); !strings.Contains(why, "exceeded quota: cpus") {
		t.Errorf("it says %q", why)
	}
	r.Freed("other")
	r.admits(0)
	r.Freed("team")
	r.admits(0, "a", "b")
	for range 20 {
		r.Namespace(r.now, function, revision, "exceeded quota: cpus")
	}
	r.admits(longestQuota - 1)
	r.admits(1, "a", "b")
	r.Namespace(r.now, function, revision, "exceeded quota: cpus")
	r.Admitted(function, "a")
	r.admits(0, "a", "b")
}

// Nodes that say the same are named together, of many the first ones.
func TestManyRefuse(t *testing.T) {
	var r Refusals
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("n%02d", i))
		r.Node(time.Unix(0, 0), function, revision, names[i], "TopologyAffinityError")
		r.Admitted(function, "another")
	}
	left, why := r.Admitting(time.Unix(0, 0), function, revision, names)
	if want := "its pods are refused by node n00, n01, n02 and 47 others (TopologyAffinityError); tried again later"; len(left) != 0 || why != want {
		t.Errorf("%v: %q, not %q", left, why, want)
	}
}

// A function that every node refuses pauses on all of them, for longer each time, instead of
// trying one of many nodes after the other. An instance that becomes ready ends that, and so do
// the function's next revision and time. Refusals of pods from before the pause do not extend it.
func TestAllRefuse(t *testing.T) {
	r := &refuser{t: t, now: time.Unix(0, 0)}
	refuse := func(node string) { r.Node(r.now, function, revision, node, "UnexpectedAdmissionError") }
	next := 0
	fresh := func(n int) {
		for range n {
			refuse(fmt.Sprintf("n%03d", next))
			next++
		}
	}
	for range 2 * maxRow { // A node counts once, whatever it says.
		refuse("n000")
	}
	fresh(maxRow - 1)
	r.admits(0, "a", "b")
	fresh(1)
	if why, want := r.admits(0), "its pods are refused by node n000, n001, n002 and 2 others in a row (UnexpectedAdmissionError); no other node gets one for a while"; why != want {
		t.Errorf("%q, not %q", why, want)
	}
	fresh(100)
	r.Changed("n000")
	r.Freed("team")
	r.admits(firstRefusal - 1)
	r.admits(1, "a", "b")
	for hold := 2 * firstRefusal; hold < 4*longestRefusal; hold *= 2 {
		fresh(3)
		r.admits(min(hold, longestRefusal) - 1)
		r.admits(1, "a", "b")
	}
	fresh(1)
	r.admits(0)
	if left, why := r.Admitting(r.now, function, revision+1, []string{"a"}); len(left) != 1 || why != "" {
		t.Errorf("the next revision gets %v: %s", left, why)
	}
	r.Admitted(function, "another")
	r.admits(0, "a", "b")
	fresh(maxRow - 1)
	r.admits(0, "a", "b")
	fresh(1)
	r.admits(firstRefusal - 1)
	r.now = r.now.Add(longestRefusal + refusalMemory + 1)
	r.Node(r.now, "other.team", 1, "a", "x")
	if r.Has(function) {
		t.Error("a pause that is long over is kept")
	}
}

// Pods per hour of a function that all of 1,000 nodes refuse, one tried after the other once a
// third of a second: the pause, and not the number of nodes, limits them.
func TestRefusedEverywhere(t *testing.T) {
	var r Refusals
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("n%04d", i)
	}
	tried, start := 0, time.Unix(0, 0)
	for now := start; now.Sub(start) < time.Hour; now = now.Add(time.Second / 3) {
		if left, _ := r.Admitting(now, function, revision, names); len(left) > 0 {
			r.Node(now, function, revision, left[0], "UnexpectedAdmissionError")
			tried++
		}
	}
	if tried > 40 {
		t.Errorf("%d pods an hour", tried)
	}
}
