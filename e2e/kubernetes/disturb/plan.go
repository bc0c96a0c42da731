// Package disturb is a proxy before a Kubernetes API server that disturbs what its
// clients see, after the idea of Sieve (OSDI 2022): a controller is right if the
// state that it ends in is the same whether or not what it was told came late,
// twice, or not at all.
//
// It does only what an API server, its watch cache and the network between may do
// to a client that follows the rules:
//
//   - events are delayed, and then are all that come after them; never reordered
//   - events are delivered twice
//   - events are not delivered at all; the watch then ends with 410 Gone, so that
//     the client has to list again and never sees what was between
//   - watches break off, between two events, or end with 410
//   - lists that accept any age (resourceVersion=0) show a state of the past,
//     which the API server itself makes out of its history
//   - writes are refused, or are done and the answer to them is lost
//
// The disturbance of each event is drawn from a seeded source for each watch, so
// that a failure can be looked at again with the same seed.
package disturb

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Plan says what is done how often. Its zero value disturbs nothing.
type Plan struct {
	// Seed decides what happens to which event.
	Seed uint64
	// Only limits the plan to requests whose path it is true for; nil: all.
	Only  func(path string) bool
	Watch Watch
	List  List
	Write Write
}

// Watch is what is done to events; the fields without a unit are probabilities per
// event.
type Watch struct {
	// Delay holds an event back, and those behind it, for up to Latest.
	Delay  float64
	Latest time.Duration
	// Duplicate delivers an event twice.
	Duplicate float64
	// Drop delivers an event never. At most Unseen later the watch ends with 410.
	Drop   float64
	Unseen time.Duration
	// Cut breaks the connection after an event, Expire ends the watch with 410.
	Cut, Expire float64
}

// List is what is done to lists: with probability Stale one shows what was Age ago.
type List struct {
	Stale float64
	Age   time.Duration
}

// Write is what is done to writes.
type Write struct {
	// Refuse answers with 500 and does nothing.
	Refuse float64
	// Lose has the API server do it and breaks the connection before the answer.
	Lose float64
}

// Check says which field of a plan makes no sense.
func (p Plan) Check() error {
	var err error
	for _, c := range []struct {
		name  string
		value float64
	}{
		{"Watch.Delay", p.Watch.Delay}, {"Watch.Duplicate", p.Watch.Duplicate}, {"Watch.Drop", p.Watch.Drop}, {"Watch.Cut", p.Watch.Cut},
		{"Watch.Expire", p.Watch.Expire}, {"List.Stale", p.List.Stale}, {"Write.Refuse", p.Write.Refuse}, {"Write.Lose", p.Write.Lose},
	} {
		if !(c.value >= 0 && c.value <= 1) {
			err = errors.Join(err, fmt.Errorf("%s is %v: a probability is from 0 to 1", c.name, c.value))
		}
	}
	if p.Watch.Delay > 0 && p.Watch.Latest <= 0 {
		err = errors.Join(err, errors.New("Watch.Delay needs Watch.Latest: how long an event is held back at most"))
	}
	if p.Watch.Drop > 0 && p.Watch.Unseen <= 0 {
		err = errors.Join(err, errors.New("Watch.Drop needs Watch.Unseen: when the watch ends at the latest"))
	}
	if p.List.Stale > 0 && p.List.Age <= 0 {
		err = errors.Join(err, errors.New("List.Stale needs List.Age: how old a list is"))
	}
	return err
}

// on reports whether the plan is about a path.
func (p Plan) on(path string) bool { return p.Only == nil || p.Only(path) }

// source is where the chances of the n-th request for key are drawn from.
func (p Plan) source(key string, n uint64) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(key))
	return rand.New(rand.NewPCG(p.Seed, h.Sum64()+n))
}

// step is what is done to one event.
type step struct {
	delay                        time.Duration
	drop, duplicate, cut, expire bool
}

// event draws what is done to an event. It draws as often whatever comes out, so
// that one probability more changes nothing about the others.
func (w Watch) event(r *rand.Rand) step {
	delayed, length := r.Float64(), r.Float64()
	s := step{drop: r.Float64() < w.Drop, duplicate: r.Float64() < w.Duplicate, cut: r.Float64() < w.Cut, expire: r.Float64() < w.Expire}
	if delayed < w.Delay {
		s.delay = time.Duration(length * float64(w.Latest))
	}
	return s
}
