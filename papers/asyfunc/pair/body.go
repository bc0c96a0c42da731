package pair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Order says with which shadows a body is paired. It is the JSON of [ShadowsPath].
type Order struct {
	// Phi is what the shadows hold, as [ParsePhi] reads it.
	Phi string `json:"phi,omitempty"`
	// Shadows are where they listen; without any the body is alone.
	Shadows []Address `json:"shadows"`
	// Synchronous makes a shadow wait while the body computes its own layers, as printed
	// (Eq. 6). Otherwise the shadows begin the next batch meanwhile.
	Synchronous bool `json:"synchronous,omitempty"`
}

// Address is where a shadow listens: a network, "unix", "tcp" or [mutual.Network], and the path or
// host:port.
type Address struct {
	Network string `json:"network"`
	Address string `json:"address"`
}

// maxShadows is the maximum number of shadows of a body.
const maxShadows = 16

func (o Order) check() error {
	if len(o.Shadows) > maxShadows {
		return fmt.Errorf("shadows has %d addresses; a body has up to %d", len(o.Shadows), maxShadows)
	}
	for i, a := range o.Shadows {
		if !slices.Contains([]string{"unix", "tcp", mutual.Network}, a.Network) || a.Address == "" {
			return fmt.Errorf("shadows[%d] is %q at %.200q: the network must be unix, tcp or %s, with an address", i, a.Network, a.Address, mutual.Network)
		}
		if slices.Contains(o.Shadows[:i], a) {
			return fmt.Errorf("shadows[%d] is given twice", i)
		}
	}
	return nil
}

// Body is an instance with the whole model: an [instance.DistributedEngine]. Alone it runs whole
// batches; paired it splits their rows within Φ. It is safe for concurrent use and computes one
// thing at a time.
type Body struct {
	prepared onnxruntime.Prepared
	segments *onnxruntime.Segments // nil if there are none
	why      error                 // why there are none
	options  Options
	whole    *onnxruntime.Engine
	turn     turn
	metrics  *metrics

	ordering sync.Mutex // held while an order is carried out
	mu       sync.Mutex
	now      *pairing // nil while the body is alone
	row      mean     // of a whole run
	batches  uint64
}

// OpenBody opens the model in a prepared directory. A model without segments is a body that
// cannot be paired. The caller closes it. onnxruntime.Load comes first.
func OpenBody(prepared string, o Options) (*Body, error) {
	p, err := onnxruntime.ReadPrepared(prepared)
	if err != nil {
		return nil, err
	}
	b := &Body{prepared: p, options: o, metrics: newMetrics()}
	b.segments, b.why = p.Segments(Tensors)
	open := o.open()
	open.Prepared, open.Divided = prepared, true
	if b.whole, err = onnxruntime.Open(open); err != nil {
		return nil, err
	}
	return b, nil
}

// Inputs implements [instance.Engine].
func (b *Body) Inputs() []tensor.Info { return b.whole.Inputs() }

// Outputs implements [instance.Engine].
func (b *Body) Outputs() []tensor.Info { return b.whole.Outputs() }

// Distributed implements [instance.DistributedEngine].
func (b *Body) Distributed() {}

// Load is how long the whole model took to load.
func (b *Body) Load() time.Duration { return b.whole.LoadTime() }

// ExpectedRun is that of the whole model.
func (b *Body) ExpectedRun() time.Duration { return b.whole.ExpectedRun() }

// Warm runs rows of made-up inputs through the whole model.
func (b *Body) Warm(ctx context.Context, rows int) (time.Duration, error) {
	return b.whole.Warm(ctx, rows)
}

// Set carries out an order: batches that begin from now on are split with these shadows. It opens
// the segments that the body needs, and connects to the shadows in the background. An order that the
// body has already changes nothing. The error says what of the order is wrong; the body then stays
// as it is.
func (b *Body) Set(o Order) error {
	if err := o.check(); err != nil {
		return err
	}
	b.ordering.Lock()
	defer b.ordering.Unlock()
	if b.paired(o) {
		return nil
	}
	var next *pairing
	if len(o.Shadows) > 0 {
		if b.why != nil {
			return b.why
		}
		phi, err := ParsePhi(o.Phi)
		if err != nil {
			return err
		}
		if next, err = b.pair(phi, o); err != nil {
			return err
		}
	}
	b.mu.Lock()
	before := b.now
	b.now = next
	b.mu.Unlock()
	if before != nil {
		return before.close()
	}
	return nil
}

// paired reports whether the body has an order already.
func (b *Body) paired(o Order) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now == nil {
		return len(o.Shadows) == 0
	}
	has := b.now.order
	return has.Phi == o.Phi && has.Synchronous == o.Synchronous && slices.Equal(has.Shadows, o.Shadows)
}

// Close ends the pairing and frees the model.
func (b *Body) Close() error { return errors.Join(b.Set(Order{}), b.whole.Close()) }

// current is the pairing for a batch and its number. The caller calls the pairing's users.Done.
func (b *Body) current() (*pairing, uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batches++
	if b.now != nil {
		b.now.users.Add(1)
	}
	return b.now, b.batches
}

// Run implements [instance.Engine].
func (b *Body) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	p, number := b.current()
	if p != nil {
		defer p.users.Done()
		if p.order.Synchronous {
			if err := p.alone.take(ctx, false, number); err != nil {
				return nil, err
			}
			defer p.alone.give()
		}
		if shares, pieces := p.split(rows); pieces > 0 {
			defer p.inflight.Add(-1)
			return p.run(ctx, batch{number: number, rows: rows, shares: shares, inputs: inputs})
		}
		defer p.inflight.Add(-1)
	}
	if err := b.turn.take(ctx, false, number); err != nil {
		return nil, err
	}
	defer b.turn.give()
	began := time.Now()
	out, err := b.whole.Run(ctx, rows, inputs)
	if err == nil {
		b.metrics.rows.WithLabelValues("body").Add(float64(rows))
		b.mu.Lock()
		b.row.add(time.Since(began), rows)
		b.mu.Unlock()
	}
	return out, err
}

// perRow is the time of a row of the whole model, 0 if none ran.
func (b *Body) perRow() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.row == 0 {
		return b.whole.ExpectedRun()
	}
	return time.Duration(float64(b.row) * float64(time.Second))
}
