package forward

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// maxReplay is the size, in bytes, up to which a body is kept for a second instance in
// case the first refuses the request. A larger body is streamed and sent only once.
const maxReplay = 64 << 10

// replay is a request's body that can be sent again from the beginning while it is
// kept. Only the latest view reads it; earlier ones get an error.
type replay struct {
	// reading is held while the source is read, which may take any time. mu guards
	// the fields below it and is never held during a read.
	reading sync.Mutex
	source  io.Reader

	mu sync.Mutex
	// kept is all that was read of the body. lost: it became too large to keep.
	kept    []byte
	lost    bool
	err     error
	current *view
}

// newReplay returns a replay that streams a body.
func newReplay(source io.Reader) *replay { return &replay{source: source} }

// heldReplay returns a replay of a body that is in memory. It does not change body.
func heldReplay(body []byte) *replay {
	return &replay{kept: body[:len(body):len(body)], err: io.EOF}
}

// view reads the body once, from the beginning.
type view struct {
	of  *replay
	pos int
}

// again returns the body from the beginning, or false if it is no longer kept.
func (r *replay) again() (io.ReadCloser, bool) {
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

// failure returns the error of reading the body, nil if there was none.
func (r *replay) failure() error {
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

// close makes all views fail. After it, nobody reads a body that was in memory. A read
// from a source may continue until its owner closes it.
func (r *replay) close() {
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
	case len(r.kept)+n > maxReplay && !superseded:
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
