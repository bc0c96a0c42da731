package fetch

import (
	"fmt"
	"sync/atomic"
)

// Progress shows how far a download is. The zero value has not begun. It may be read while a download changes it.
type Progress struct {
	// of is the download that this one follows, nil if it is one.
	of atomic.Pointer[Progress]
	// done and total count bytes. total is -1 if the server does not say how many there are.
	done, total atomic.Int64
}

// follow makes p show another download.
func (p *Progress) follow(of *Progress) {
	if p != nil {
		p.of.Store(of)
	}
}

// begin notes the number of bytes, -1 if it is not known.
func (p *Progress) begin(total int64) { p.total.Store(total) }

// add counts bytes that are here. It is negative for those that have to be fetched again.
func (p *Progress) add(n int64) { p.done.Add(n) }

// Bytes returns the number of bytes that are here and of all; -1 if that is not known.
func (p *Progress) Bytes() (done, total int64) {
	if of := p.of.Load(); of != nil {
		return of.Bytes()
	}
	return p.done.Load(), p.total.Load()
}

// String is a phrase such as "120 of 500 MB are here".
func (p *Progress) String() string {
	const mb = 1e6
	done, total := p.Bytes()
	switch {
	case total > 0 && done >= total:
		return fmt.Sprintf("all of %.0f MB are here and are being checked", float64(total)/mb)
	case total > 0:
		return fmt.Sprintf("%.0f of %.0f MB are here", float64(done)/mb, float64(total)/mb)
	case done > 0:
		return fmt.Sprintf("%.0f MB are here", float64(done)/mb)
	}
	return "its server is being asked"
}
