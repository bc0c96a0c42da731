package relay

import (
	"sync/atomic"

	"github.com/faas-infer/faas-infer/instance/shared"
)

// Memory is memory that a body shares with its shadows. After a job without an answer the
// caller retires it: the other process may still write to the job's outputs there. It is safe
// for concurrent use.
type Memory struct {
	*shared.Memory
	number  uint32
	retired atomic.Bool
}

var memories atomic.Uint32

// NewMemory makes memory.
func NewMemory() (*Memory, error) {
	m, err := shared.New("relay")
	if err != nil {
		return nil, err
	}
	return &Memory{Memory: m, number: memories.Add(1)}, nil
}

// Retire closes the memory; what is lent of it stays until it is freed. It may be called more
// than once.
func (m *Memory) Retire() error {
	if m.retired.Swap(true) {
		return nil
	}
	return m.Close()
}

// Retired reports whether [Memory.Retire] was called.
func (m *Memory) Retired() bool { return m.retired.Load() }

// place finds data in the memory. ok is false if it is not there.
func (m *Memory) place(data []byte) (at uint64, ok bool) {
	if m == nil || m.Retired() {
		return 0, false
	}
	found, ok := m.Where(data)
	return uint64(found), ok
}
