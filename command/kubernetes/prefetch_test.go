package kubernetes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
)

// The nodes get a content first on which instances start first: those with the least room that suffices. A content of
// several functions is sent once.
func TestSpotsOf(t *testing.T) {
	var nodes []cluster.Node
	for i, free := range []int{4000, 100, 1000, 2000, 8000, 0} {
		nodes = append(nodes, cluster.Node{Name: fmt.Sprintf("n%d", i), Free: cluster.Resources{CPU: free}})
	}
	wanted := []wantedModel{
		{content: "a", function: "f.fn", namespace: "fn"},
		{content: "a", function: "g.fn", namespace: "fn"},
		{content: "a", function: "f.other", namespace: "other", nodes: []string{"n1", "n4"}},
		{content: "b", function: "h.fn", namespace: "fn", nodes: []string{}},
	}
	spots, functions := spotsOf(wanted, nodes)
	want := []spot{{"n2", "fn", "a"}, {"n3", "fn", "a"}, {"n0", "fn", "a"}, {"n4", "fn", "a"}, {"n4", "other", "a"}, {"n1", "other", "a"}}
	if !slices.Equal(spots, want) || functions[want[0]] != "f.fn" {
		t.Errorf("%v, %v", spots, functions)
	}
}

// Few contents are sent ahead at a time. One that was sent is confirmed now and then, and one that failed waits longer
// each time.
func TestAhead(t *testing.T) {
	now := time.Unix(1e9, 0)
	a, b, c := spot{"n", "fn", "a"}, spot{"n", "fn", "b"}, spot{"n", "fn", "c"}
	all := []spot{a, b, c}
	var known ahead
	next := func(want ...spot) {
		t.Helper()
		if got := known.next(all, now); !slices.Equal(got, want) {
			t.Errorf("next are %v, want %v", got, want)
		}
	}
	next(a, b)
	next()
	if !known.ended(a, nil, now) || !known.ended(b, errors.New("full"), now) {
		t.Error("news are not told")
	}
	next(c)
	known.ended(c, nil, now)
	next()
	now = now.Add(minPrefetchPause)
	next(b)
	if known.ended(b, errors.New("full"), now) {
		t.Error("each failure is told")
	}
	now = now.Add(minPrefetchPause)
	next()
	now = now.Add(minPrefetchPause)
	next(b)
	known.ended(b, nil, now)
	now = now.Add(confirmAfter)
	next(a, b)
	known.ended(a, nil, now)
	known.ended(b, nil, now)
	all = nil
	next()
	if len(known.confirmed) != 0 || len(known.failures) != 0 {
		t.Errorf("it remembers %v, %v", known.confirmed, known.failures)
	}
}

// A content is forgotten once its function is gone, or has another one and no instance has the earlier one any more.
func TestContentsAreForgotten(t *testing.T) {
	here := map[string]bool{"f.fn": true}
	u := &uris{known: func(full string) bool { return here[full] }}
	keep := func(content, service string, number uint64) {
		f := &provider.Function{Name: service + ".fn", Revision: number}
		f.Deployment.Service, f.Deployment.Namespace = service, "fn"
		u.keep(content, revision{Function: f}, nil)
	}
	keep("old", "f", 1)
	keep("new", "f--next", 2)
	keep("new", "f", 2)
	keep("gone", "g", 3)
	running := []cluster.Instance{{InstanceSpec: cluster.InstanceSpec{Artefact: cluster.Artefact{Model: inContent("m", "old")}}}}
	left := func(instances []cluster.Instance, after time.Duration, want ...string) {
		t.Helper()
		u.forget(instances, time.Now().Add(after))
		if got := slices.Sorted(maps.Keys(u.contents)); !slices.Equal(got, want) {
			t.Errorf("left are %v, want %v", got, want)
		}
	}
	left(nil, 0, "gone", "new", "old")
	left(running, supersededFor, "new", "old")
	left(nil, supersededFor, "new")
	here = nil
	left(nil, supersededFor)
	if len(u.latest) != 0 {
		t.Errorf("of functions that are gone it knows %v", u.latest)
	}
}
