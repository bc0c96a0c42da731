package duplex

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// Linger is how long, behind an answer, a client may take to send the rest of a
// body that nobody wants. Were the connection closed under it, it would take that
// for a failure and not look at the answer.
const Linger = 500 * time.Millisecond

// Body is the body of a request to an [http.Server] whose handler lets another
// goroutine read it. The handler must call Finish before it returns. An answer
// whose header leaves while the body has not [Body.Ended] must say "Connection:
// close": the rest of the body would pass for the next request. A nil *Body is
// that of a request without one.
type Body struct {
	source  io.Reader
	control *http.ResponseController
	idle    time.Duration

	// reading is held while the source is read; mu, for what is below it,
	// never is.
	reading sync.Mutex

	mu sync.Mutex
	// err is why there is nothing more to read, io.EOF at the end.
	err error
	// inRead: the source is being read. finished: it is not to be any more.
	inRead, finished bool
	// until is the deadline, as far as this body has set one.
	until time.Time
}

// NewBody guards the body of r, which w answers, and lets w be written while it
// is read. If idle is not 0 reading fails with [os.ErrDeadlineExceeded] after so
// long without a byte, or without [Body.Progress].
func NewBody(w http.ResponseWriter, r *http.Request, idle time.Duration) *Body {
	if r.ContentLength == 0 {
		return nil
	}
	b := &Body{source: r.Body, control: http.NewResponseController(w), idle: idle}
	// Or net/http would hold an answer back until the request has come in whole.
	// It fails where it is not needed.
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

// Close implements io.Closer. The source is closed by its server.
func (b *Body) Close() error { return nil }

// begin lets the source be read, unless that is over.
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

// note takes what came of reading.
func (b *Body) note(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inRead = false
	b.err = err
	if errors.Is(err, io.EOF) && !b.until.IsZero() {
		// From now on the server reads, to notice a client that hangs up.
		b.setDeadline(time.Time{})
	}
}

// extend puts the deadline off. The lock is held.
func (b *Body) extend() {
	if b.idle == 0 {
		return
	}
	// Not for each piece: a timer has to be moved.
	if now := time.Now(); b.until.Sub(now) < b.idle-b.idle/8 {
		b.setDeadline(now.Add(b.idle))
	}
}

func (b *Body) setDeadline(t time.Time) {
	b.until = t
	_ = b.control.SetReadDeadline(t) // It fails if the connection is gone; then so does reading.
}

// Progress tells that the exchange goes on though no byte of the body may come:
// the time that the client may take for the next begins anew.
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

// Err is why there is nothing more to read, io.EOF at the end; nil if there may
// be.
func (b *Body) Err() error {
	if b == nil {
		return io.EOF
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Stop makes reading fail, also where it waits for the client. A transport that
// gives a request up waits for who reads its body.
func (b *Body) Stop() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished = true
	// Only then: after a failure there is no telling where a body ends, so that
	// the rest could not be taken.
	if b.inRead {
		b.setDeadline(time.Unix(1, 0))
	}
}

// Finish returns when nobody reads the body any more, nor will. The rest of
// it is taken and thrown away for at most linger, if that is not 0, behind what
// has been written of the answer.
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
