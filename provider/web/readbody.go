package web

import (
	"bytes"
	"net/http"
	"sync"
)

// ReadBody is a request's body that has been read and is held already. [BodyReader.Read] takes it over
// without a copy. Anybody else reads it like another body, until Close.
type ReadBody struct {
	held    *Body
	content []byte

	mu     sync.Mutex
	reader bytes.Reader
	closed bool
}

// NewReadBody returns a body of the content, which lies in the buffer of held or in memory that held
// counts. held is empty after a BodyReader has taken it over; otherwise close the body before you free and
// release held: a transport may read a request's body after it has returned the answer.
func NewReadBody(held *Body, content []byte) *ReadBody {
	b := &ReadBody{held: held, content: content}
	b.reader.Reset(content)
	return b
}

// Read implements io.Reader. After Close it returns [http.ErrBodyReadAfterClose].
func (b *ReadBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.reader.Read(p)
}

// Close implements io.Closer.
func (b *ReadBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// hand gives the body to the charge of another holder, which also takes head bytes. After an error
// nothing is held, and the buffer stays where it was.
func (b *ReadBody) hand(to Charge, head int64) (Body, error) {
	n := b.held.Held()
	b.held.Release()
	if err := to.Take(n + head); err != nil {
		return Body{}, err
	}
	taken := Body{BodyBuffer: b.held.BodyBuffer, Charge: to, content: b.content}
	b.held.BodyBuffer = nil
	return taken, nil
}
