package build

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// A body must come at minRate bytes/s after grace. Otherwise a client without the secret
// could keep others waiting by sending very slowly.
const (
	minRate = 64 << 10
	grace   = 10 * time.Second
)

// paced is a body that must come at minRate, and completely before last.
type paced struct {
	body        io.Reader
	connection  *http.ResponseController
	began, last time.Time
	read        int64
}

// due returns the time at which the next bytes must be there: 10 s after began, and 1 s
// later for each 64 KiB read.
func (p *paced) due() time.Time {
	due := p.began.Add(grace + time.Duration(p.read)*time.Second/minRate)
	if due.After(p.last) {
		return p.last
	}
	return due
}

// Read implements io.Reader. It sets the read deadline to due first.
func (p *paced) Read(into []byte) (int, error) {
	if err := p.connection.SetReadDeadline(p.due()); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return 0, err
	}
	n, err := p.body.Read(into)
	p.read += int64(n)
	return n, err
}
