package pair

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/asyfunc/relay"
)

// Shadow holds the segments of Φ and nothing else.
type Shadow struct {
	parts    []part
	identity relay.Identity
	load     time.Duration
}

// part is a segment that is open.
type part struct {
	*onnxruntime.Segment
	engine *onnxruntime.Engine
}

// Options say how to open a body or a shadow.
type Options struct {
	// Threads is the number of computing threads, at least 1. Memory limits what the engines
	// together allocate in bytes, 0 for no limit.
	Threads int
	Memory  int64
	// MaxRows is the largest job of a shadow in rows, at least 1.
	MaxRows int
	// Dial connects a body to its shadows; nil means a nil [mutual.Identity]'s.
	Dial   mutual.Dial
	Logger zerolog.Logger
}

func (o Options) dial() mutual.Dial {
	if o.Dial == nil {
		return (*mutual.Identity)(nil).Dial
	}
	return o.Dial
}

func (o Options) open() onnxruntime.Options {
	return onnxruntime.Options{Threads: o.Threads, MemoryLimit: o.Memory}
}

// OpenShadow opens the segments of phi in the directory of a prepared model. The caller closes
// it. onnxruntime.Load comes first.
func OpenShadow(prepared string, phi Phi, o Options) (*Shadow, error) {
	began := time.Now()
	p, segments, err := read(prepared, phi)
	if err != nil {
		return nil, err
	}
	if o.MaxRows < 1 {
		return nil, fmt.Errorf("the largest job is %d rows; it must be at least 1", o.MaxRows)
	}
	s := &Shadow{}
	all := make([]*onnxruntime.Segment, len(phi))
	for i, r := range phi {
		if all[i], err = segments.Segment(r.First, r.End); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		if err := all[i].Closed(); err != nil {
			return nil, errors.Join(fmt.Errorf("phi is %s: %w", phi, err), s.Close())
		}
		e, err := all[i].Open(o.open())
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.parts = append(s.parts, part{all[i], e})
	}
	s.identity = identity(p, phi, all)
	s.identity.MaxRows = o.MaxRows
	s.load = time.Since(began)
	return s, nil
}

// read reads a prepared model, and refuses blocks that it does not have.
func read(prepared string, phi Phi) (onnxruntime.Prepared, *onnxruntime.Segments, error) {
	p, err := onnxruntime.ReadPrepared(prepared)
	if err != nil {
		return p, nil, err
	}
	segments, err := p.Segments(Tensors)
	if err != nil {
		return p, nil, err
	}
	return p, segments, phi.check(segments.Blocks())
}

// Load is how long the segments took to open.
func (s *Shadow) Load() time.Duration { return s.load }

// Weights is the size of Φ's weights in bytes.
func (s *Shadow) Weights() (n int64) {
	for _, p := range s.parts {
		n += p.Weights
	}
	return n
}

// Run implements [relay.Handler].
func (s *Shadow) Run(ctx context.Context, segment, rows int, inputs []tensor.Tensor, into [][]byte) error {
	switch {
	case segment < 0 || segment >= len(s.parts):
		return fmt.Errorf("there is no segment %d here; there are %d", segment, len(s.parts))
	case rows > s.identity.MaxRows:
		return fmt.Errorf("a job of %d rows; the largest is %d", rows, s.identity.MaxRows)
	case len(into) != len(s.parts[segment].Outputs):
		return fmt.Errorf("places for %d outputs of a segment with %d", len(into), len(s.parts[segment].Outputs))
	}
	_, err := s.parts[segment].engine.RunInto(ctx, rows, inputs, into)
	return err
}

// Start answers bodies at a listener in the background until ctx ends or stop is called, which waits for
// the end and closes the shadow. It closes the listener.
func (s *Shadow) Start(ctx context.Context, l net.Listener, log zerolog.Logger) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Serve(ctx, l, s.identity, s, log) }()
	return func() error {
		cancel()
		return errors.Join(<-ended, s.Close())
	}
}

// Close frees the segments, after a job in progress has ended.
func (s *Shadow) Close() error {
	var errs []error
	for _, p := range s.parts {
		errs = append(errs, p.engine.Close())
	}
	return errors.Join(errs...)
}
