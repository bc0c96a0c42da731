package children

import (
	"context"

	"github.com/faas-infer/faas-infer/instance/python"
)

// keepWarm makes sure that a model in Python has a warm process, or will have one.
func (m *Models) keepWarm(prepared string) error {
	_, err := m.startWarm(prepared)
	return err
}

// awaitWarm is keepWarm that also waits until the process is ready or has failed.
func (m *Models) awaitWarm(ctx context.Context, prepared string) error {
	ready, err := m.startWarm(prepared)
	if err != nil || ready == nil {
		return err
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startWarm starts a warm process; ready is nil if the model needs none.
func (m *Models) startWarm(prepared string) (ready <-chan struct{}, err error) {
	if m.Warm == nil || !python.IsPrepared(prepared) {
		return nil, nil
	}
	p, err := python.Read(prepared)
	if err != nil {
		return nil, err
	}
	return m.Warm.Keep(p)
}
