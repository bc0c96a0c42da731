package duplex

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// Linger is how long after an answer a client may go on sending a body that nobody
// reads. If the connection closed under it, the client would see a failure and not
// read the answer.
const Linger = 500 * time.Millisecond

// Body is the body of a request to an [http.Server] whose handler lets another
// goroutine read it. The handler must call Finish before it returns. An answer
// whose header is sent before the body has [Body.Ended] must say "Connection:
// close": otherwise the server would take the rest of the body for the next request.
// A nil *Body stands for a request without a body.
type Body struct {
	source  io.Reader
	control *http.ResponseController
	idle    time.Duration

	// reading is held while the source is read. mu guards the fields below it and is
	// never held while the source is read.
	reading sync.Mutex

	mu sync.Mutex
	// err says why there is nothing more to read: io.EOF at the end.
	err error
	// inRead says that a goroutine reads the source, finished that none may any more.
	inRead, finished bool
	// until is the read deadline that this body has set, zero if none.
	until time.Time
}

// NewBody guards the body of r and lets the handler write to w while the body is read.
// If idle is not 0, reading fails with [os.ErrDeadlineExceeded] after that time without
// a byte or a call of [Body.Progress].
func NewBody(w http.ResponseWriter, r *http.Request, idle time.Duration) *Body {
	if r.ContentLength == 0 {
		return nil
	}
	b := &Body{source: r.Body, control: http.NewResponseController(w), idle: idle}
	// Otherwise net/http would hold the answer back until the whole request has come.
	// The call fails only where it is not needed.
	_ = b.control.EnableFullDuplex()
	return b
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if err := b.begin(); err != nil {
		return 0, err
	}
	n, err := b.source.Read(p)
	b.note(err)
	return n, err
}

// Close implements io.Closer. It does nothing: the server closes the source.
func (b *Body) Close() error { return nil }

// begin marks the start of a read, or says why the source can no longer be read.
func (b *Body) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err != nil:
		return b.err
	case b.finished:
		return http.ErrBodyReadAfterClose
	}
	b.inRead = true
	b.extend()
	return nil
}

// note records the result of a read.
func (b *Body) note(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inRead = false
	b.err = err
	if errors.Is(err, io.EOF) && !b.until.IsZero() {
		// From now on the server reads the connection, to notice a client that hangs up.
		b.setDeadline(time.Time{})
	}
}

// extend postpones the deadline. The caller holds mu.
func (b *Body) extend() {
	if b.idle == 0 {
		return
	}
	// Only after an eighth of idle: every change has to move a timer.
	if now := time.Now(); b.until.Sub(now) < b.idle-b.idle/8 {
		b.setDeadline(now.Add(b.idle))
	}
}

func (b *Body) setDeadline(t time.Time) {
	b.until = t
	_ = b.control.SetReadDeadline(t) // It fails if the connection is gone; reading fails then, too.
}

// Progress restarts the idle time of the client. Call it when the exchange advances
// without a byte of the body.
func (b *Body) Progress() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inRead && !b.finished {
		b.extend()
	}
}

// Ended reports whether the body has been read to its end.
func (b *Body) Ended() bool { return b == nil || errors.Is(b.Err(), io.EOF) }

// Err says why there is nothing more to read: io.EOF at the end, nil if there may be
// more.
func (b *Body) Err() error {
	if b == nil {
		return io.EOF
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Stop makes reading fail, even a read that waits for the client. A transport that
// cancels a request waits until its body is no longer being read.
func (b *Body) Stop() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished = true
	// Only during a read: a failed read hides where the body ends, so Finish could not
	// read the rest.
	if b.inRead {
		b.setDeadline(time.Unix(1, 0))
	}
}

// Finish ends all reading of the body and returns when no goroutine reads it. If linger
// is not 0, it first flushes the answer, then reads and discards the rest of the body
// for at most linger.
func (b *Body) Finish(linger time.Duration) {
	if b == nil || b.Ended() {
		return
	}
	if linger > 0 {
		_ = b.control.Flush()
	}
	b.mu.Lock()
	b.finished = true
	if b.err == nil {
		b.setDeadline(time.Now().Add(linger))
	}
	b.mu.Unlock()
	b.reading.Lock()
	defer b.reading.Unlock()
	if linger > 0 && b.Err() == nil {
		_, err := io.Copy(io.Discard, b.source)
		if err == nil {
			err = io.EOF
		}
		b.note(err)
	}
}
