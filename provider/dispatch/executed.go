package dispatch

import (
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
)

// Executed is a batch that an instance has executed.
type Executed struct {
	Instance cluster.InstanceID
	// Size is the requests in it.
	Size int
	// Exec is how long the exchange took, without its wait behind another batch.
	Exec time.Duration
	// Beside is the CPU time that the instance used beside the engine, 0 if it does not
	// tell.
	Beside time.Duration
}

// executed is what an exchange tells of how long batches take; its size is 0 if
// that is nothing. An exchange of several batches tells it only if all were full,
// one of a part of a batch or with errors among its answers does not.
func (b *batch) executed(responses []frame.Response, took taken) Executed {
	n := len(responses)
	if !took.reported || n != len(b.calls) || n > b.limit && n%b.limit != 0 {
		return Executed{}
	}
	for i := range responses {
		if responses[i].Status != 200 {
			return Executed{}
		}
	}
	size := min(n, b.limit)
	part := func(d time.Duration) time.Duration { return d * time.Duration(size) / time.Duration(n) }
	return Executed{Instance: b.instance, Size: size, Exec: part(took.time), Beside: part(took.beside)}
}

const (
	// warmUp is how many of an instance's first batches tell nothing: the engine
	// touches its memory for the first time.
	warmUp = 3
	// maxExecuted bounds what is kept until somebody asks; of more, a random
	// choice is kept.
	maxExecuted = 256
)

// evidence keeps what was executed until it is asked for.
type evidence struct {
	kept []Executed
	// seen counts all, also those that are not kept.
	seen int
}

// add keeps what a member has executed.
func (e *evidence) add(m *peer, ran Executed) {
	if ran.Size == 0 {
		return
	}
	if m.executed++; m.executed <= warmUp {
		return
	}
	e.seen++
	if len(e.kept) < maxExecuted {
		e.kept = append(e.kept, ran)
	} else if i := rand.IntN(e.seen); i < maxExecuted {
		e.kept[i] = ran
	}
}

// Executed appends to into the batches that were executed since it was last
// called. Of very many, it is a random choice of them.
func (d *Dispatcher) Executed(into []Executed) []Executed {
	d.mu.Lock()
	defer d.mu.Unlock()
	into = append(into, d.evidence.kept...)
	d.evidence.kept, d.evidence.seen = d.evidence.kept[:0], 0
	return into
}
