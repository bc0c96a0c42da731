package command

import (
	"context"

	"github.com/faas-infer/faas-infer/instance/python"
)

// keepWarm sees to a warm process for what Python runs.
func (m *childModels) keepWarm(prepared string) error {
	_, err := m.startWarm(prepared)
	return err
}

// awaitWarm is keepWarm, and waits until the process can be used or cannot.
func (m *childModels) awaitWarm(ctx context.Context, prepared string) error {
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

// startWarm returns nil where there is to be no warm process.
func (m *childModels) startWarm(prepared string) (ready <-chan struct{}, err error) {
	if m.warm == nil || !python.IsPrepared(prepared) {
		return nil, nil
	}
	p, err := python.Read(prepared)
	if err != nil {
		return nil, err
	}
	return m.warm.Keep(p)
}
