package kubernetes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	none := func(spot) int { return 1 }
	spots, functions := spotsOf(wanted, nodes, none)
	want := []spot{{"n2", "fn", "a"}, {"n3", "fn", "a"}, {"n0", "fn", "a"}, {"n4", "fn", "a"}, {"n4", "other", "a"}, {"n1", "other", "a"}}
	if !slices.Equal(spots, want) || functions[want[0]] != "f.fn" {
		t.Errorf("%v, %v", spots, functions)
	}
}

// The choice stays with nodes that have a content when the nodes' load changes, for as long as they have room. A node that
// does not take it comes last.
func TestSpotsStay(t *testing.T) {
	now := time.Unix(1e9, 0)
	wanted := []wantedModel{{content: "a", function: "f.fn", namespace: "fn"}}
	known := ahead{}
	nodes := make([]cluster.Node, 8)
	for i := range nodes {
		nodes[i].Name = fmt.Sprintf("n%d", i)
	}
	choose := func(want string, refuses ...string) {
		t.Helper()
		for {
			spots, _ := spotsOf(wanted, nodes, func(at spot) int { return known.rank(at, now) })
			next := known.next(spots, now)
			for _, at := range next {
				var err error
				if slices.Contains(refuses, at.node) {
					err = errors.New("no room")
				}
				known.ended(at, err, now)
			}
			if len(next) > 0 {
				continue
			}
			got := ""
			for _, at := range spots {
				got += at.node
			}
			if got != want {
				t.Errorf("chosen are %s, want %s", got, want)
			}
			return
		}
	}
	load := func(free ...int) {
		for i, cpu := range free {
			nodes[i].Free.CPU = cpu
		}
	}
	load(1000, 1100, 1200, 1300, 1400, 1500, 1600, 1700)
	choose("n0n3n4n5", "n1", "n2")
	load(8000, 7000, 6000, 5000, 4000, 3000, 2000, 1000)
	now = now.Add(minPrefetchPause / 2)
	choose("n5n4n3n0")
	load(100)
	choose("n7n5n4n3")
	load(600)
	choose("n0n7n5n4")
	if said := known.waits(wanted)["f.fn"]; !strings.Contains(said, "on node n1 until 01:47:10: no room; on node n2") {
		t.Errorf("it says %q", said)
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
	now = now.Add(2 * confirmAfter)
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
