package forward

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// maxReplay is how much of a body is kept, in bytes, so that another instance
// can be asked when the first would not have the request. A larger one is
// streamed, and sent once.
const maxReplay = 64 << 10

// replay is a request's body that can be sent again from its beginning while it
// is still kept. One view at a time reads it; the views before do so no more.
type replay struct {
	// reading is held while the source is read, which may take as long as the
	// client likes; mu, for what is below it, never is.
	reading sync.Mutex
	source  io.Reader

	mu sync.Mutex
	// kept is the body's beginning, all that was read unless lost.
	kept    []byte
	lost    bool
	err     error
	current *view
}

// newReplay streams a body.
func newReplay(source io.Reader) *replay { return &replay{source: source} }

// heldReplay is a body that is in memory whole. It is not changed.
func heldReplay(body []byte) *replay {
	return &replay{kept: body[:len(body):len(body)], err: io.EOF}
}

// view is one reading of the body.
type view struct {
	of  *replay
	pos int
}

// again returns the body from its beginning, or false if it is not kept any
// more.
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

// failure is why the body could not be read to its end; nil if it could.
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

// close ends the reading for good. When it returns nothing is read from a body
// that was held; a source may still be, until its owner closes it.
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
	// A view before this one may have read on meanwhile.
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

// fromKept reads what is there already; 0 and no error if the source is to be
// asked.
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

// Close implements io.Closer. The source is closed by whose it is.
func (v *view) Close() error { return nil }
