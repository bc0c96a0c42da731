package build

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// A body must come at leastRate bytes/s once grace is over: whoever has not signed
// anything must not keep the others out with a trickle.
const (
	leastRate = 64 << 10
	grace     = 10 * time.Second
)

// paced is a body that must not come too slowly, nor after last.
type paced struct {
	body        io.Reader
	connection  *http.ResponseController
	began, last time.Time
	read        int64
}

// due is when the next bytes must be there: after 10 s, with 64 KiB read a second
// later, and so on.
func (p *paced) due() time.Time {
	due := p.began.Add(grace + time.Duration(p.read)*time.Second/leastRate)
	if due.After(p.last) {
		return p.last
	}
	return due
}

// Read implements io.Reader.
func (p *paced) Read(into []byte) (int, error) {
	if err := p.connection.SetReadDeadline(p.due()); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return 0, err
	}
	n, err := p.body.Read(into)
	p.read += int64(n)
	return n, err
}
