package origin

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
)

const (
	// connections is over how many connections a large object of S3 comes, as S3's own clients fetch it: the service
	// bounds the rate of each.
	connections = 4
	// piece is how many bytes one request asks for, and inMemory how many bytes of a connection wait for their turn.
	piece, inMemory = 8 << 20, 8 << 20
	// part is how many bytes are passed on at a time. A read of TLS brings 16 KiB at most, so several reads fill one:
	// otherwise few bytes would take all places in a stream, and three connections would wait for the fourth.
	part = 64 << 10
	// rangedFrom is the size from which an object comes over several connections.
	rangedFrom = connections * piece
)

// ranged is an object's content from an offset on, read over several connections and given in order. The first error
// is that of the earliest byte that is missing, so who goes on there has lost nothing.
type ranged struct {
	ctx    context.Context
	cancel context.CancelFunc
	// from is the first offset, at the next one and end the object's size.
	from, at, end int64
	// streams have the pieces: that with number n comes from the stream n modulo connections.
	streams [connections]chan arrived
	rest    []byte
	reading sync.WaitGroup
}

// arrived is a part of a piece, or why there is none.
type arrived struct {
	bytes []byte
	err   error
}

// errWhole says that a server does not send ranges.
var errWhole = errors.New("its server sends the whole file instead of the range that it was asked for")

// rangeable reports whether an object may come in ranges from an offset on: each must be of the same content.
func (o *Object) rangeable(offset int64) bool {
	return o.Size-offset >= rangedFrom && strings.HasPrefix(o.Tag, `"`) && !o.single.Load()
}

// openRanged begins to read an object over several connections.
func (m remote) openRanged(ctx context.Context, o *Object, offset int64) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	r := &ranged{ctx: ctx, cancel: cancel, from: offset, at: offset, end: o.Size}
	for i := range r.streams {
		r.streams[i] = make(chan arrived, inMemory/part)
		r.reading.Go(func() {
			for at := offset + int64(i)*piece; at < o.Size; at += connections * piece {
				if err := r.fetch(m, o, at, r.streams[i]); err != nil {
					r.give(r.streams[i], arrived{err: err})
					return
				}
			}
		})
	}
	return r
}

// fetch brings one piece. A connection that breaks after some bytes is replaced, so that what has arrived over the
// others stays.
func (r *ranged) fetch(m remote, o *Object, at int64, to chan<- arrived) error {
	for end := min(at+piece, r.end); at < end; {
		n, err := r.request(m, o, at, end, to)
		if stop := new(Fatal); err != nil && (n == 0 || errors.As(err, stop) || r.ctx.Err() != nil) {
			return err
		}
		at += n
	}
	return nil
}

// request asks once for the bytes of a piece, and returns how many came.
func (r *ranged) request(m remote, o *Object, at, end int64, to chan<- arrived) (came int64, err error) {
	body, begins, err := m.openRange(r.ctx, o, at, end)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if begins != at {
		o.single.Store(true)
		return 0, errWhole
	}
	for at+came < end {
		b := make([]byte, min(part, end-at-came))
		n, err := io.ReadFull(body, b)
		if n > 0 && !r.give(to, arrived{bytes: b[:n]}) {
			return came, r.ctx.Err()
		}
		if came += int64(n); err != nil && at+came < end {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return came, err
		}
	}
	return came, nil
}

// give passes a part on. It reports false if nobody wants it any more.
func (r *ranged) give(to chan<- arrived, a arrived) bool {
	select {
	case to <- a:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// Read implements [io.Reader].
func (r *ranged) Read(b []byte) (int, error) {
	if r.at == r.end {
		return 0, io.EOF
	}
	if len(r.rest) == 0 {
		select {
		case a := <-r.streams[(r.at-r.from)/piece%connections]:
			if a.err != nil {
				return 0, a.err
			}
			r.rest = a.bytes
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		}
	}
	n := copy(b, r.rest)
	r.rest, r.at = r.rest[n:], r.at+int64(n)
	return n, nil
}

// Close implements [io.Closer]. It waits until all connections are given back.
func (r *ranged) Close() error {
	r.cancel()
	r.reading.Wait()
	return nil
}
