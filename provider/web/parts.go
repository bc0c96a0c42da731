package web

import (
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// MaxUnsentParts is how many bytes of parts wait for a client that reads slowly, beside the latest part.
	MaxUnsentParts = 256 << 10
	// maxUnsent is how many parts wait.
	maxUnsent = 1024
)

// errSlowReader ends an answer in parts whose client reads too slowly.
var errSlowReader = &Error{Status: http.StatusRequestTimeout,
	Text: "the client reads the answer more slowly than its parts come; read faster, or ask for the whole answer"}

// Parts passes the parts of an answer on to its client. The sender never waits for the client: one who reads too
// slowly loses the rest. Begin with NewParts, and call End in any case.
type Parts struct {
	write  func(part []byte) error
	fail   func(cause error)
	queue  chan []byte
	unsent atomic.Int64
	ended  chan struct{}
	// count is the number of parts, and first when the first came.
	count int
	first time.Time
	// lost: a part was not taken. No later one may follow the gap.
	lost bool
	// broken is the first error, of the goroutine that has queue.
	broken error
}

// NewParts returns the parts of an answer. A goroutine calls write for each part. It calls fail with the cause if no
// more can be written: end the request then.
func NewParts(write func(part []byte) error, fail func(cause error)) *Parts {
	return &Parts{write: write, fail: fail, queue: make(chan []byte, maxUnsent), ended: make(chan struct{})}
}

// Take takes the next part, which it keeps. It does not block. The error says that no more parts are needed.
func (p *Parts) Take(part []byte) error {
	if p.lost {
		return errSlowReader
	}
	if p.count == 0 {
		p.first = time.Now()
		go p.run()
	}
	p.count++
	n := int64(len(part))
	if waiting := p.unsent.Add(n) - n; waiting <= MaxUnsentParts {
		select {
		case p.queue <- part:
			return nil
		default:
		}
	}
	p.unsent.Add(-n)
	p.lost = true
	p.fail(errSlowReader)
	return errSlowReader
}

func (p *Parts) run() {
	defer close(p.ended)
	for part := range p.queue {
		if p.broken == nil {
			if p.broken = p.write(part); p.broken != nil {
				p.fail(p.broken)
			}
		}
		p.unsent.Add(-int64(len(part)))
	}
}

// End returns when the client has the parts, or is gone. Call it when no more parts come. It returns their number, and
// when the first one came.
func (p *Parts) End() (count int, first time.Time) {
	close(p.queue)
	if p.count > 0 {
		<-p.ended
	}
	return p.count, p.first
}
