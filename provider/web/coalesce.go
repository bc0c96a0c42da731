package web

import (
	"encoding/binary"
	"sync/atomic"
	"time"
)

const (
	// frameHead is the number of bytes of a frame of HTTP/2 before its payload, messagePrefix that of a message of
	// gRPC before its content.
	frameHead     = 9
	messagePrefix = 5
	// maxCoalesced is the maximum number of bytes that wait for more, coalescingTime the time for which they do: no frame
	// follows headers whose client has no room for a body, or resets the stream.
	maxCoalesced   = 4 << 10
	coalescingTime = 2 * time.Millisecond
)

// coalescer decides which writes of a server of HTTP/2 without TLS wait for the next one. net/http writes the headers of
// an answer, a message of gRPC and its trailers each with a system call, though each follows at once; the client then
// wakes three times. What waits is the headers of an answer with status 200 and a body, and a whole message
// before its trailers: net/http has the next frame of that stream already. The exception is a handler that flushes, so
// nothing waits while one does that. A message in parts does not wait, because its client may have to make room for the
// next one. It is used by one writer at a time, except for flushing.
type coalescer struct {
	// flushing is the number of handlers that have flushed.
	flushing atomic.Int32
	state    int8
	// head holds the first bytes of the present frame, known of them are there, and rest of its payload is to come.
	head        [frameHead + messagePrefix]byte
	known, rest int
	held        []byte
}

// The states of a coalescer: before the first write, following frames, and passing all on.
const (
	coalescerNew int8 = iota
	coalescerOn
	coalescerOff
)

// add takes the next bytes of a connection. wait says that they wait; otherwise all must be written now, and then sent or
// failed called.
func (c *coalescer) add(p []byte) (all []byte, wait bool) {
	if c.state == coalescerNew {
		c.state = coalescerOff
		if beginsHTTP2(p) {
			c.state = coalescerOn
		}
	}
	wait = c.state == coalescerOn && c.follow(p) && len(c.held)+len(p) <= maxCoalesced && c.flushing.Load() == 0
	if !wait && len(c.held) == 0 {
		return p, false
	}
	c.held = append(c.held, p...)
	return c.held, wait
}

// sent notes that all is written.
func (c *coalescer) sent() {
	c.held = c.held[:0]
	if cap(c.held) > 2*maxCoalesced {
		c.held = nil
	}
}

// failed notes that only n bytes of all are written, of which the last ones were the p bytes of add. It returns how many
// of these are written; the rest may be added again. Nothing waits from here.
func (c *coalescer) failed(n, p int) int {
	c.state = coalescerOff
	before := max(0, len(c.held)-p)
	c.held = c.held[min(n, before):before]
	return max(0, n-before)
}

// beginsHTTP2 reports whether a server's first bytes are a frame with its settings. Those of TLS and of HTTP/1 are not.
func beginsHTTP2(p []byte) bool {
	const settings = 4
	return len(p) >= frameHead && p[0] == 0 && p[3] == settings && binary.BigEndian.Uint32(p[5:]) == 0
}

// follow reports whether the bytes end with a frame that the next one of its stream follows at once.
func (c *coalescer) follow(p []byte) (more bool) {
	for len(p) > 0 {
		more = false
		if c.known < frameHead {
			n := copy(c.head[c.known:frameHead], p)
			c.known += n
			p = p[n:]
			if c.known < frameHead {
				return false
			}
			c.rest = int(c.head[0])<<16 | int(c.head[1])<<8 | int(c.head[2])
		}
		n := min(c.rest, len(p))
		c.known += copy(c.head[c.known:], p[:n])
		c.rest -= n
		p = p[n:]
		if c.rest == 0 {
			more = continues(c.head[:c.known])
			c.known = 0
		}
	}
	return more
}

// continues reports whether another frame of the stream follows a frame at once, by the frame's first bytes.
func continues(head []byte) bool {
	const (
		data, headers         = 0, 1
		endStream, endHeaders = 1, 4
		status200             = 0x88 // It comes first. Interim answers have other statuses.
	)
	length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	kind, flags, payload := head[3], head[4], head[frameHead:]
	switch {
	case flags&endStream != 0:
		return false
	case kind == headers:
		return flags&endHeaders != 0 && len(payload) > 0 && payload[0] == status200
	case kind == data:
		return len(payload) == messagePrefix && int(binary.BigEndian.Uint32(payload[1:])) == length-messagePrefix
	}
	return false
}

// Write implements net.Conn.
func (c *connection) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	all, wait := c.coalescer.add(p)
	switch {
	case wait && c.coalesced == nil:
		c.coalesced = time.AfterFunc(coalescingTime, c.writeHeld)
	case wait:
		c.coalesced.Reset(coalescingTime)
	}
	if wait {
		return len(p), nil
	}
	if c.coalesced != nil {
		c.coalesced.Stop()
	}
	n, err := c.Conn.Write(all)
	if err != nil {
		return c.coalescer.failed(n, len(p)), err
	}
	c.coalescer.sent()
	return len(p), nil
}

// writeHeld writes what has waited for too long. An error is left to the next write, which begins with the rest.
func (c *connection) writeHeld() {
	c.writing.Lock()
	defer c.writing.Unlock()
	held := c.coalescer.held
	if len(held) == 0 {
		return
	}
	if n, err := c.Conn.Write(held); err != nil {
		c.coalescer.failed(n, 0)
		return
	}
	c.coalescer.sent()
}
