package async

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/provider/async/queue"
)

const (
	// trial is how long the next request waits that was being executed when the provider ended,
	// unless the one before it has its answer earlier.
	trial = 2 * time.Second
	// forgotten is how long a file knows a request whose execution ended with the provider.
	forgotten = 7 * 24 * time.Hour
	// slotSize is the size in bytes of a slot of the file: sequence, time stored in ns, deaths,
	// and 1 while the request is being executed.
	slotSize = 4 * 8
)

// executing knows which requests are being executed, and how many executions of each have ended
// with the provider. It keeps that in a file, which it writes before and after each execution
// and does not sync: it must survive the process, not the machine. With an external server it
// counts only what happened to this replica.
type executing struct {
	mu   sync.Mutex
	file *os.File
	// slots are those of requests that are being executed or have deaths; free are unused
	// numbers below next.
	slots map[identity]*slot
	free  []int64
	next  int64
	// turn has a value while no request is on trial.
	turn chan struct{}
}

// identity is a message's in all streams.
type identity struct {
	sequence uint64
	stored   int64
}

type slot struct {
	number, deaths int64
	running        int
}

// openExecuting opens the file in a directory, and counts the executions in it that an earlier
// provider has begun and not ended. Without a directory nothing is counted.
func openExecuting(dir string, now time.Time) (*executing, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of the queue: %w", err)
	}
	path := filepath.Join(dir, "executing")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("requests in execution: %w", err)
	}
	e := &executing{slots: map[identity]*slot{}, turn: make(chan struct{}, 1)}
	e.turn <- struct{}{}
	for ; len(text) >= slotSize; text = text[slotSize:] {
		at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(text[8*i:])) }
		id := identity{uint64(at(0)), at(1)}
		if id.sequence == 0 || now.Sub(time.Unix(0, id.stored)) > forgotten {
			continue
		}
		e.slots[id] = &slot{deaths: at(2) + at(3)}
	}
	// A new file, because the old one may have a hole for each slot that is free.
	if e.file, err = os.CreateTemp(dir, "executing-"); err != nil {
		return nil, fmt.Errorf("requests in execution: %w", err)
	}
	for id, s := range e.slots {
		s.number = e.next
		e.next++
		err = errors.Join(err, e.write(id, s))
	}
	if err = errors.Join(err, os.Rename(e.file.Name(), path)); err != nil {
		return nil, fmt.Errorf("requests in execution: %w", errors.Join(err, e.file.Close(), os.Remove(e.file.Name())))
	}
	return e, nil
}

// write writes a slot.
func (e *executing) write(id identity, s *slot) error {
	var text [slotSize]byte
	for i, v := range []int64{int64(id.sequence), id.stored, s.deaths, int64(min(s.running, 1))} {
		binary.LittleEndian.PutUint64(text[8*i:], uint64(v))
	}
	_, err := e.file.WriteAt(text[:], s.number*slotSize)
	return err
}

func identityOf(m *queue.Message) identity { return identity{m.Sequence, m.Stored.UnixNano()} }

// deaths returns how many executions of a message have ended with the provider.
func (e *executing) deaths(m *queue.Message) int {
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.slots[identityOf(m)]; s != nil {
		return int(s.deaths)
	}
	return 0
}

// alone waits until no other request is on trial. All those that were being executed when the
// provider ended come back together; if they ran together, too, the one that ends the provider
// would take the others with it a second time. Call pass when the execution is over.
func (e *executing) alone(ctx context.Context, draining <-chan struct{}) (pass func(), err error) {
	select {
	case <-e.turn:
	case <-draining:
		return nil, unavailable(errLeaving)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	once := sync.OnceFunc(func() { e.turn <- struct{}{} })
	late := time.AfterFunc(trial, once)
	return func() {
		late.Stop()
		once()
	}, nil
}

// begin notes that the execution of a message begins. Without the note, on a full disk, it
// begins all the same.
func (e *executing) begin(m *queue.Message) error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	id := identityOf(m)
	s := e.slots[id]
	if s == nil {
		s = &slot{number: e.next}
		if last := len(e.free) - 1; last >= 0 {
			s.number, e.free = e.free[last], e.free[:last]
		} else {
			e.next++
		}
		e.slots[id] = s
	}
	s.running++
	return e.write(id, s)
}

// end notes that the execution has ended, however it did.
func (e *executing) end(m *queue.Message) error { return e.change(m, func(s *slot) { s.running-- }) }

// forget forgets the deaths of a message that leaves the queue.
func (e *executing) forget(m *queue.Message) error {
	return e.change(m, func(s *slot) { s.deaths = 0 })
}

// change changes a message's slot, if there is one, and frees one that says nothing.
func (e *executing) change(m *queue.Message, how func(*slot)) error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	id := identityOf(m)
	s := e.slots[id]
	if s == nil {
		return nil
	}
	how(s)
	if s.running > 0 || s.deaths > 0 {
		return e.write(id, s)
	}
	delete(e.slots, id)
	e.free = append(e.free, s.number)
	return e.write(identity{}, s)
}

// Close closes the file.
func (e *executing) Close() error {
	if e == nil {
		return nil
	}
	return e.file.Close()
}
