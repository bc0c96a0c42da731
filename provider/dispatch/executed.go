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
	// Size is the number of requests in it, or of rows if a request may have several.
	Size int
	// Exec is how long the exchange took, without its wait behind another batch.
	Exec time.Duration
	// Beside is the CPU time that the instance used outside the engine, 0 if it does not
	// report it.
	Beside time.Duration
	// Elements is the mean number of elements of a request's row, 0 if all rows have one size.
	Elements int64
	// Rows is the mean number of rows of a request, 0 if the instance pads none.
	Rows float64
}

// executed returns the time of a batch as an exchange shows it. Its Size is 0 if the
// exchange shows none: if it carried only a part of the batch, if an answer is an
// error, or if it carried several batches of which a large part was not full. Of rows it then
// still says how many there were, and how long.
func (b *batch) executed(responses []frame.Response, took taken) Executed {
	n := len(responses)
	if !took.reported || n != len(b.calls) {
		return Executed{}
	}
	if took.rows > 0 {
		n = max(n, int(took.rows*float64(n)+0.5))
	}
	for i := range responses {
		if responses[i].Status != 200 {
			return Executed{}
		}
	}
	if rest := n % b.limit; n > b.limit && rest != 0 && (took.rows <= 0 || n < mostlyFull*b.limit) {
		if took.rows > 0 {
			return Executed{Instance: b.instance, Elements: took.elements, Rows: took.rows}
		}
		return Executed{}
	}
	size := min(n, b.limit)
	part := func(d time.Duration) time.Duration { return d * time.Duration(size) / time.Duration(n) }
	return Executed{Instance: b.instance, Size: size, Exec: part(took.time), Beside: part(took.beside), Elements: took.elements, Rows: took.rows}
}

const (
	// mostlyFull is the number of batches of which one may be smaller than the others, if they count as full.
	mostlyFull = 4
	// warmUp is the number of an instance's first batches that are not counted: the
	// engine touches its memory for the first time in them.
	warmUp = 3
	// maxExecuted bounds the samples between two calls of Executed. If there are
	// more, a random selection is kept.
	maxExecuted = 256
)

// samples keeps executed batches until Executed is called.
type samples struct {
	kept []Executed
	// seen counts all batches, including those that are not kept.
	seen int
}

// add keeps a batch that m has executed.
func (e *samples) add(m *instanceState, ran Executed) {
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

// Executed appends to into the batches that were executed since the last call. Of more
// than maxExecuted it appends a random selection.
func (d *Dispatcher) Executed(into []Executed) []Executed {
	d.mu.Lock()
	defer d.mu.Unlock()
	into = append(into, d.samples.kept...)
	d.samples.kept, d.samples.seen = d.samples.kept[:0], 0
	return into
}
