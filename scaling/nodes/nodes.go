// Package nodes decides how many machines of each kind there should be: INFaaS' three rules for
// adding one (§4.2.3), and a rule for removing one, which INFaaS lacks. It takes what instances
// hold of each node and their states, and returns the number of nodes wanted; drivers show the
// number or ask for machines. It has no clock and starts nothing. Begin reading at
// [Scaler.Look]; rules.go has the rules for adding a node, drain.go that for removing one.
package nodes

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Kind is a kind of node, by its hardware.
type Kind string

// The kinds.
const (
	CPU Kind = "cpu"
	GPU Kind = "gpu"
)

// Kinds lists the kinds, the cheaper first.
var Kinds = []Kind{CPU, GPU}

// KindOf returns the kind of a node.
func KindOf(total cluster.Resources) Kind {
	if total.GPU > 0 {
		return GPU
	}
	return CPU
}

// Instance is an instance on a node.
type Instance struct {
	Holds cluster.Resources
	// Nodes are the nodes on which it may run, nil for all.
	Nodes []string
}

// Node is a machine that is there.
type Node struct {
	Name  string
	Total cluster.Resources
	// Others is what is held of it beside Instances. A node with others is never drained.
	Others    cluster.Resources
	Instances []Instance
	// Overloaded and Interfered: it has an instance in that state (Fig. 4).
	Overloaded, Interfered bool
}

// held is what instances and others hold of the node.
func (n Node) held() cluster.Resources {
	sum := n.Others
	for _, in := range n.Instances {
		sum = sum.Add(in.Holds)
	}
	return sum
}

// Settings are the parameters of the rules.
type Settings struct {
	// Full is the part of a resource above which a node counts as full (rule 1), and Most the
	// part of the nodes that must have overloaded instances (rule 3).
	Full, Most float64
	// Low is the part of each resource that all nodes together may hold after one is drained.
	// It is below Full, so that rule 1 does not add a node again.
	Low float64
	// Hold is how long a rule must hold before a node is added, and GiveUp how long none may
	// hold before a node that has not come is no longer wanted.
	Hold, GiveUp time.Duration
	// Rest is how long the instances of a node must fit elsewhere before it is drained.
	Rest time.Duration
	// Same is the part of the load from which it counts as the same load as before.
	Same float64
}

// Default returns INFaaS' thresholds (80 %) and the others of this package.
func Default() Settings {
	return Settings{Full: 0.8, Most: 0.8, Low: 0.7, Hold: 6 * time.Second, GiveUp: 2 * time.Minute, Rest: 10 * time.Minute, Same: 0.9}
}

// Wanted is how many nodes of a kind there should be.
type Wanted struct {
	Kind Kind
	// Count is the number wanted, Present that of the nodes that are there.
	Count, Present int
	// Size is what instances can take of the largest node of the kind that is there.
	Size cluster.Resources
	// Drain is the node that is to go, "" if none is.
	Drain string
	// Why is the reason if Count is not Present.
	Why string
}

// Scaler holds what the rules must remember between two looks. Make it with New.
type Scaler struct {
	settings Settings
	kinds    map[Kind]*memory
}

// memory is what the scaler remembers of a kind.
type memory struct {
	// since is when a rule to add a node began to hold, zero if none holds. last is when one
	// held last, and rule the latest one.
	since, last time.Time
	rule        rule
	// asked is the number of nodes wanted while one is missing, otherwise 0.
	asked int
	// fits is the time since which the instances of each node have fitted elsewhere.
	fits map[string]time.Time
	// drain is the node that is being drained, "" if none is.
	drain string
	// floor is the number of nodes below which the load was once too much for the kind, and
	// load the load then. Both are 0 if there was none.
	floor int
	load  float64
}

// New returns a scaler that remembers nothing.
func New(s Settings) *Scaler {
	m := &Scaler{settings: s, kinds: map[Kind]*memory{}}
	for _, k := range Kinds {
		m.kinds[k] = &memory{fits: map[string]time.Time{}}
	}
	return m
}

// Look returns how many nodes of each kind are wanted, in the order of Kinds. One node of a kind
// is added, and one in all is drained, at a time: only then do the states show whether that was
// enough. A node that is being drained counts as gone.
func (s *Scaler) Look(now time.Time, all []Node) []Wanted {
	staying := slices.DeleteFunc(slices.Clone(all), func(n Node) bool { return s.kinds[KindOf(n.Total)].drain == n.Name })
	rules := s.settings.holding(staying)
	out := make([]Wanted, 0, len(Kinds))
	whole := newFleet(all)
	for _, k := range Kinds {
		m := s.kinds[k]
		present, size := m.arrive(k, all)
		m.watch(now, rules[k])
		switch {
		case m.since.IsZero() || now.Sub(m.since) < s.settings.Hold:
		case m.drain != "": // It is needed again, and comes back sooner than a new one.
			m.learn(rules[k], present, load(all, k))
			m.drain = ""
		case m.asked == 0:
			m.learn(rules[k], present+1, load(all, k))
			m.asked = present + 1
		}
		if m.asked > 0 && m.since.IsZero() && now.Sub(m.last) >= s.settings.GiveUp {
			m.asked = 0
		}
		m.release(now, s.settings, k, whole, s.draining())
		out = append(out, m.wanted(k, present, size))
	}
	return out
}

// draining reports whether a node is being drained.
func (s *Scaler) draining() bool {
	return slices.ContainsFunc(Kinds, func(k Kind) bool { return s.kinds[k].drain != "" })
}

// arrive counts the nodes of a kind, and takes in one that has come or gone. size is what the
// largest one has.
func (m *memory) arrive(k Kind, all []Node) (present int, size cluster.Resources) {
	draining := false
	for _, n := range all {
		if KindOf(n.Total) == k {
			if present++; n.Total.CPU > size.CPU {
				size = n.Total
			}
			draining = draining || n.Name == m.drain
		}
	}
	if !draining {
		m.drain = ""
	}
	if m.asked > 0 && present >= m.asked {
		m.asked, m.since = 0, time.Time{}
	}
	return present, size
}

// watch takes in which rule holds now.
func (m *memory) watch(now time.Time, r rule) {
	switch {
	case r == none:
		m.since = time.Time{}
		return
	case m.since.IsZero():
		m.since = now
	}
	m.last, m.rule = now, r
}

// learn remembers that fewer than count nodes were too few for a load. What instances hold says
// that only for rule 1, whose threshold is in [Settings.Low] already.
func (m *memory) learn(r rule, count int, load float64) {
	if r != full {
		m.floor, m.load = count, load
	}
}

// wanted returns the number of nodes wanted.
func (m *memory) wanted(k Kind, present int, size cluster.Resources) Wanted {
	w := Wanted{Kind: k, Count: present, Present: present, Size: size}
	switch {
	case m.asked > 0:
		w.Count, w.Why = m.asked, m.rule.why()
	case m.drain != "":
		w.Count, w.Drain, w.Why = present-1, m.drain, "the instances of "+m.drain+" fit on the other nodes"
	}
	return w
}
