package web

import (
	"bytes"
	"io"
)

// ReadBody is a request's body that has been read and is held already. [BodyReader.Read] takes it over
// without a copy. Anybody else reads it like another body.
type ReadBody struct {
	io.Reader
	held    *Body
	content []byte
}

// NewReadBody returns a body of the content, which lies in the buffer of held or in memory that held
// counts. held is empty after a BodyReader has taken it over; otherwise free and release it.
func NewReadBody(held *Body, content []byte) *ReadBody {
	return &ReadBody{bytes.NewReader(content), held, content}
}

// Close implements io.Closer. It does nothing.
func (b *ReadBody) Close() error { return nil }

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
