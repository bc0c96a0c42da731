// Package disturb is a proxy in front of a Kubernetes API server that disturbs its clients'
// view, after the idea of Sieve (OSDI 2022): a controller is right if it reaches the same
// state whether events come on time, late, twice, or not at all. Begin with Plan and Start.
//
// It does only what an API server, its watch cache and the network may do to a client
// that follows the rules:
//
//   - It delays events, together with all later ones. It never reorders them.
//   - It delivers events twice.
//   - It drops events. The watch then ends with 410 Gone: the client must list again and
//     never sees the states in between.
//   - It breaks watches between two events, or ends them with 410.
//   - It makes lists that accept any age (resourceVersion=0) show a past state. The API
//     server makes this state from its history.
//   - It refuses writes, or carries them out and loses the answer.
//
// Each watch has a seeded random source for the disturbances of its events. The same seed
// repeats a failure.
package disturb

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Plan has the disturbances and their probabilities. Its zero value disturbs nothing.
type Plan struct {
	// Seed is the seed of the random sources.
	Seed uint64
	// Only, if not nil, limits the plan to requests for whose path it returns true.
	Only  func(path string) bool
	Watch Watch
	List  List
	Write Write
}

// Watch has the disturbances of events. Fields without a unit are probabilities per event.
type Watch struct {
	// Delay holds an event and all later ones back for up to Latest.
	Delay  float64
	Latest time.Duration
	// Duplicate delivers an event twice.
	Duplicate float64
	// Drop does not deliver an event. At most Unseen later the watch ends with 410.
	Drop   float64
	Unseen time.Duration
	// Cut breaks the connection after an event, Expire ends the watch with 410.
	Cut, Expire float64
}

// List has the disturbance of lists: with probability Stale, a list shows the state of Age
// ago.
type List struct {
	Stale float64
	Age   time.Duration
}

// Write has the disturbances of writes, as probabilities.
type Write struct {
	// Refuse answers with 500 and does nothing.
	Refuse float64
	// Lose lets the API server do the write and breaks the connection before the answer.
	Lose float64
}

// Check returns an error that names the invalid fields of a plan.
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
			err = errors.Join(err, fmt.Errorf("%s is %v: it must be a probability from 0 to 1", c.name, c.value))
		}
	}
	if p.Watch.Delay > 0 && p.Watch.Latest <= 0 {
		err = errors.Join(err, errors.New("Watch.Delay needs Watch.Latest, the maximum delay of an event"))
	}
	if p.Watch.Drop > 0 && p.Watch.Unseen <= 0 {
		err = errors.Join(err, errors.New("Watch.Drop needs Watch.Unseen, the maximum time until the watch ends"))
	}
	if p.List.Stale > 0 && p.List.Age <= 0 {
		err = errors.Join(err, errors.New("List.Stale needs List.Age, the age of a list"))
	}
	return err
}

// on reports whether the plan applies to a path.
func (p Plan) on(path string) bool { return p.Only == nil || p.Only(path) }

// source returns the random source of the n-th request for key.
func (p Plan) source(key string, n uint64) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(key))
	return rand.New(rand.NewPCG(p.Seed, h.Sum64()+n))
}

// step has the disturbances of one event.
type step struct {
	delay                        time.Duration
	drop, duplicate, cut, expire bool
}

// event draws the disturbances of an event. It always draws the same number of values:
// one disturbance must not affect the draws of the others.
func (w Watch) event(r *rand.Rand) step {
	delayed, length := r.Float64(), r.Float64()
	s := step{drop: r.Float64() < w.Drop, duplicate: r.Float64() < w.Duplicate, cut: r.Float64() < w.Cut, expire: r.Float64() < w.Expire}
	if delayed < w.Delay {
		s.delay = time.Duration(length * float64(w.Latest))
	}
	return s
}
