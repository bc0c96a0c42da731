package relay

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// copies copies inputs to outputs.
type copies struct{}

// Run implements [Handler].
func (copies) Run(_ context.Context, _, _ int, inputs []tensor.Tensor, into [][]byte) error {
	for i := range into {
		copy(into[i], inputs[i].Data)
	}
	return nil
}

const (
	// smallest is the size of a small message's tensor in bytes, largeMiB that of a large one's, some rows
	// of an image model's input.
	smallest, largeMiB = 64, 2
)

// Measure measures on this machine what tensors take between two instances over a Unix socket: trip is the time
// of a small message there and back, perMiB that of each MiB of tensors one way. Both are medians of so many
// messages. This side copies the tensors into the memory once, as a body does whose Φ begins with the model's
// inputs; other tensors are computed where they are read.
func Measure(ctx context.Context, messages int) (trip, perMiB time.Duration, err error) {
	dir, err := os.MkdirTemp("", "faas-infer-relay-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return 0, 0, err
	}
	serving, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- Serve(serving, l, Identity{}, copies{}, zerolog.Nop()) }()
	defer func() { cancel(); <-ended }()
	p, err := Dial(ctx, (*mutual.Identity)(nil).Dial, "unix", l.Addr().String(), Identity{})
	if err != nil {
		return 0, 0, err
	}
	defer p.Close()
	m, err := NewMemory()
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = m.Retire() }()
	if trip, err = p.median(ctx, m, smallest, messages); err != nil {
		return 0, 0, fmt.Errorf("a small message: %w", err)
	}
	large, err := p.median(ctx, m, largeMiB<<20, messages)
	if err != nil {
		return 0, 0, fmt.Errorf("%d MiB: %w", largeMiB, err)
	}
	return trip, max(0, large-trip) / largeMiB, nil
}

// median is the median time of messages that carry size bytes there and a few back.
func (p *Peer) median(ctx context.Context, m *Memory, size, messages int) (time.Duration, error) {
	from := make([]byte, size)
	part, err := m.Lend(int64(size) + smallest)
	if err != nil {
		return 0, err
	}
	defer m.Free(part)
	there, back := part.Data()[:size], part.Data()[size:]
	all := make([]time.Duration, max(1, messages))
	for i := range all {
		began := time.Now()
		copy(there, from)
		in := tensor.Tensor{Type: tensor.FP32, Shape: []int64{1, int64(size / 4)}, Data: there}
		if _, err := p.Run(ctx, Job{Rows: 1, Within: time.Minute, Inputs: []tensor.Tensor{in}, Into: [][]byte{back}, Memory: m}); err != nil {
			return 0, err
		}
		all[i] = time.Since(began)
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}
