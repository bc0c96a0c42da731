package duplex

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// MaxReplay is the size, in bytes, up to which a body is kept in case that it must be sent once more.
// A larger body is streamed and sent only once.
const MaxReplay = 64 << 10

// Replay is a request's body that can be sent again from the beginning while it is
// kept. Only the latest view reads it; earlier ones get an error.
type Replay struct {
	// reading is held while the source is read, which may take any time. mu guards
	// the fields below it and is never held during a read.
	reading sync.Mutex
	source  io.Reader
	// keep counts n more bytes that are kept, or refuses them.
	keep func(n int64) error

	mu sync.Mutex
	// kept is all that was read of the body. lost: it became too large to keep.
	kept    []byte
	lost    bool
	err     error
	current *view
}

// NewReplay returns a replay that streams a body. keep is called before n more bytes of it are kept; after an
// error the body is not kept any more. It is not called after End. nil keeps all.
func NewReplay(source io.Reader, keep func(n int64) error) *Replay {
	if keep == nil {
		keep = func(int64) error { return nil }
	}
	return &Replay{source: source, keep: keep}
}

// HeldReplay returns a replay of a body that is in memory. It does not change body.
func HeldReplay(body []byte) *Replay {
	return &Replay{kept: body[:len(body):len(body)], err: io.EOF}
}

// view reads the body once, from the beginning.
type view struct {
	of  *Replay
	pos int
}

// Again returns the body from the beginning, or false if it is no longer kept.
func (r *Replay) Again() (io.ReadCloser, bool) {
	if r == nil {
		return http.NoBody, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost {
		return nil, false
	}
	r.current = &view{of: r}
	return r.current, true
}

// Failure returns the error of reading the body, nil if there was none.
func (r *Replay) Failure() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil || errors.Is(r.err, io.EOF) {
		return nil
	}
	return r.err
}

// End makes all views fail. After it, nobody reads a body that was in memory. A read
// from a source may continue until its owner closes it.
func (r *Replay) End() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.kept, r.lost, r.err = nil, nil, true, http.ErrBodyReadAfterClose
}

// Read implements io.Reader.
func (v *view) Read(p []byte) (int, error) {
	if n, err := v.fromKept(p); n > 0 || err != nil {
		return n, err
	}
	r := v.of
	r.reading.Lock()
	defer r.reading.Unlock()
	// An earlier view may have read more meanwhile.
	if n, err := v.fromKept(p); n > 0 || err != nil {
		return n, err
	}
	n, err := r.source.Read(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	superseded := r.current != v
	switch {
	case r.lost:
	case !superseded && len(r.kept)+n > MaxReplay, n > 0 && r.keep(int64(n)) != nil && !superseded:
		r.kept, r.lost = nil, true
	default:
		r.kept = append(r.kept, p[:n]...)
		v.pos += n
	}
	if superseded {
		return 0, http.ErrBodyReadAfterClose
	}
	return n, err
}

// fromKept reads from the kept part of the body. It returns 0 and no error if the
// source must be read.
func (v *view) fromKept(p []byte) (int, error) {
	r := v.of
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.current != v:
		return 0, http.ErrBodyReadAfterClose
	case v.pos < len(r.kept):
		n := copy(p, r.kept[v.pos:])
		v.pos += n
		return n, nil
	}
	return 0, r.err
}

// Close implements io.Closer. It does nothing: the source's owner closes the source.
func (v *view) Close() error { return nil }
