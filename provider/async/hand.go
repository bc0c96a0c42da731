package async

import (
	"context"
	"errors"
	"sync"
	"time"
)

// The states of a request.
const (
	// Queued: it waits for its first try, or for its turn.
	Queued = "queued"
	// Running: it is being executed, or its result is on the way to the callback URL.
	Running = "running"
	// Retrying: a try failed, and another one follows.
	Retrying = "retrying"
	// Done and Failed: the function's answer was final, with a status below 400 or not.
	Done   = "done"
	Failed = "failed"
	// Dead: it is a dead letter.
	Dead = "dead"
	// Cancelled: a client has cancelled it.
	Cancelled = "cancelled"
)

// errCancelled ends the execution of a request that a client has cancelled.
var errCancelled = errors.New("the client has cancelled the request")

// Progress is what is known of one request.
type Progress struct {
	ID       string `json:"id"`
	Function string `json:"function"`
	State    string `json:"state"`
	// Attempts counts the tries that have begun.
	Attempts int       `json:"attempts"`
	Queued   time.Time `json:"queued"`
	// Started is the time of the last try, Next that of the next one, Ended the end of all.
	Started time.Time `json:"started,omitzero"`
	Next    time.Time `json:"next,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Status is that of the last answer, 0 if there was none. Reason is why the request is dead, one of
	// package retry's. Detail is a sentence.
	Status int    `json:"status,omitempty"`
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Result is the kept result, nil if none was asked for or it is not there yet.
	Result *KeptResult `json:"result,omitempty"`
}

// ended reports whether nothing more becomes of the request, unless it is replayed.
func (p *Progress) ended() bool {
	return p.State == Done || p.State == Failed || p.State == Dead || p.State == Cancelled
}

// held is a request in hand. The registry's lock guards it.
type held struct {
	progress Progress
	cancel   context.CancelCauseFunc
	// committed: its end is decided and cannot be cancelled any more.
	committed, cancelled bool
}

// inHand are the requests in hand of this replica that clients may ask for.
type inHand struct {
	mu sync.Mutex
	by map[uint64]*held
	// gone are the messages that were cancelled since a time when nobody had them in hand, before those of
	// the time before. Such a message may have been on its way here.
	gone, before map[uint64]bool
	since        time.Time
}

// goneFor is how long a message may be on its way from the server.
const goneFor = time.Minute

func newInHand() *inHand { return &inHand{by: map[uint64]*held{}, gone: map[uint64]bool{}} }

// begin counts a message as in hand until leave. The context that it returns ends when the request is
// cancelled.
func (h *inHand) begin(ctx context.Context, sequence uint64, p Progress) (context.Context, *held) {
	ctx, cancel := context.WithCancelCause(ctx)
	one := &held{progress: p, cancel: cancel}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.by[sequence] = one
	if h.gone[sequence] || h.before[sequence] {
		one.stop()
	}
	return ctx, one
}

// stop marks a request as cancelled and ends its execution. The caller holds the lock.
func (o *held) stop() {
	o.cancelled, o.progress.State = true, Cancelled
	o.progress.Ended, o.progress.Next = time.Now(), time.Time{}
	o.cancel(errCancelled)
}

// leave forgets a message whose state is recorded, unless its state is another one by now: it returns that
// and false then.
func (h *inHand) leave(sequence uint64, one *held, recorded string) (Progress, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one.progress.State != recorded {
		return one.progress, false
	}
	h.remove(sequence, one)
	return one.progress, true
}

// drop forgets a message that is not in hand any more.
func (h *inHand) drop(sequence uint64, one *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(sequence, one)
}

// remove forgets a message. The caller holds the lock.
func (h *inHand) remove(sequence uint64, one *held) {
	if h.by[sequence] == one {
		delete(h.by, sequence)
	}
	one.cancel(nil)
}

// change changes what is known of a request, unless it is cancelled, and returns it.
func (h *inHand) change(one *held, how func(p *Progress)) Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !one.cancelled {
		how(&one.progress)
	}
	return one.progress
}

// commit decides a request's end. It returns false if the request is cancelled.
func (h *inHand) commit(one *held, how func(p *Progress)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one.cancelled {
		return false
	}
	one.committed = true
	how(&one.progress)
	return true
}

// reopen takes the end of a request back, and changes what is known of it. It can be cancelled again.
func (h *inHand) reopen(one *held, how func(p *Progress)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one.committed = false
	how(&one.progress)
}

// look returns what is known of a message in hand.
func (h *inHand) look(sequence uint64) (Progress, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.by[sequence]
	if one == nil {
		return Progress{}, false
	}
	return one.progress, true
}

// stop cancels a message in hand, unless its end is decided, and returns what is known of it. One that
// is not in hand is cancelled when it comes.
func (h *inHand) stop(sequence uint64, now time.Time) (Progress, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.by[sequence]
	if one == nil {
		if now.Sub(h.since) > goneFor {
			h.gone, h.before, h.since = map[uint64]bool{}, h.gone, now
		}
		h.gone[sequence] = true
		return Progress{}, false
	}
	if !one.committed && !one.cancelled {
		one.stop()
	}
	return one.progress, true
}
