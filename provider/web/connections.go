package web

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

const (
	// freeHead is the size in bytes up to which an unfinished head is not counted: the
	// connection's buffer has room for it anyway.
	freeHead = 4 << 10
	// connectionShare is how many times the connections that are free one address may hold. A
	// gateway, through which all clients come, thus gets four fifths.
	connectionShare = 4
	// evicted is the part of all connections that is closed at once when there is no room, so
	// that choosing them costs little for each new connection.
	evicted = 64
	// slowHead is how long a head must have been unfinished before its connection is closed to
	// make room for another.
	slowHead = time.Second
)

// ConnectionOptions bound what the connections of a server hold together.
type ConnectionOptions struct {
	// Max is the maximum number of open connections.
	Max int
	// MaxHeads is the maximum number of bytes of all heads that have begun and not ended, and of
	// HTTP/2 streams.
	MaxHeads int64
	// AnswerTimeout is how long a client may take nothing of an answer of an HTTP/2 stream; 0 is no
	// limit. duplex.LimitStalls sees only whole connections.
	AnswerTimeout time.Duration
}

// Connections bounds the connections of a server, idle ones and those with unfinished heads
// included: a head is counted by no request, because there is none yet. It counts by address
// and bites only when room is scarce. One address may hold half of MaxHeads, or as much as it
// leaves free, and four times as many connections as are free. If there is no room for a new
// connection, the longest idle ones are closed, then those whose heads are the slowest. A
// connection with a request in progress is never closed. It is safe for concurrent use.
type Connections struct {
	options ConnectionOptions
	heads   *Budget
	closed  *prometheus.CounterVec
	states  *prometheus.Desc

	// mu is taken when a connection opens or closes, not for requests.
	mu      sync.Mutex
	open    map[*connection]struct{}
	holders map[netip.Addr]int
}

// The reasons for closing a connection, in the metric.
const (
	reasonIdle    = "idle"
	reasonSlow    = "slow_head"
	reasonHeads   = "heads"
	reasonRefused = "refused"
)

// errHeads ends a connection whose head finds no room, errClosed one that made room for another.
// Their type keeps net/http from answering 400: the client is not to blame.
var (
	errHeads  = &net.OpError{Op: "read", Err: errors.New("unfinished heads take all the memory allowed")}
	errClosed = &net.OpError{Op: "read", Err: net.ErrClosed}
)

// NewConnections returns bounds that no connection uses yet.
func NewConnections(o ConnectionOptions) *Connections {
	name := func(s string) string { return prometheus.BuildFQName("faas_infer", "", s) }
	c := &Connections{
		options: o,
		heads:   NewBudget(BudgetOptions{Limit: o.MaxHeads, Full: errHeads, ClientShare: errHeads}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: name("connections_closed_total"),
			Help: "Connections of clients that were closed to keep a bound, by reason: idle, slow_head, heads, refused."}, []string{"reason"}),
		states:  prometheus.NewDesc(name("connections"), "Open connections of clients.", nil, nil),
		open:    map[*connection]struct{}{},
		holders: map[netip.Addr]int{},
	}
	for _, reason := range []string{reasonIdle, reasonSlow, reasonHeads, reasonRefused} {
		c.closed.WithLabelValues(reason)
	}
	return c
}

// Describe is part of prometheus.Collector.
func (s *Connections) Describe(ch chan<- *prometheus.Desc) {
	ch <- s.states
	s.closed.Describe(ch)
}

// Collect is part of prometheus.Collector.
func (s *Connections) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	open := len(s.open)
	s.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(s.states, prometheus.GaugeValue, float64(open))
	s.closed.Collect(ch)
}

// Listen returns a listener whose connections are within the bounds. Other listeners may wrap
// it if their connections have a method NetConn, as those of crypto/tls do.
func (s *Connections) Listen(l net.Listener) net.Listener { return boundListener{l, s} }

type boundListener struct {
	net.Listener
	bounds *Connections
}

// Accept implements net.Listener. It closes connections for which there is no room.
func (l boundListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			// Other parts of the provider have taken the descriptors. net/http tries again.
			l.bounds.mu.Lock()
			victims := l.bounds.victims(time.Now(), netip.Addr{})
			l.bounds.mu.Unlock()
			l.bounds.evict(victims)
		}
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: NewSocket(conn), bounds: l.bounds, holder: holderOf(conn.RemoteAddr())}
		if l.bounds.admit(time.Now(), c) {
			return c, nil
		}
		l.bounds.closed.WithLabelValues(reasonRefused).Inc()
		_ = conn.Close() // There is nothing to lose.
	}
}

// holderOf returns the address that holds a connection. A host owns a whole /64 of IPv6.
func holderOf(a net.Addr) netip.Addr {
	both, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	ip := both.Addr().Unmap()
	if ip.Is6() {
		prefix, _ := ip.Prefix(64) // An address of IPv6 has 128 bits.
		return prefix.Addr()
	}
	return ip
}

// admit adds a connection, if there is room or room can be made.
func (s *Connections) admit(now time.Time, c *connection) bool {
	s.mu.Lock()
	var victims []*connection
	defer func() {
		s.mu.Unlock()
		s.evict(victims)
	}()
	free := s.options.Max - len(s.open)
	switch {
	case free <= 0:
		victims = s.victims(now, netip.Addr{})
	case s.holders[c.holder] > connectionShare*free:
		victims = s.victims(now, c.holder)
	default:
		s.add(now, c)
		return true
	}
	if len(victims) == 0 {
		return false
	}
	s.add(now, c)
	return true
}

// add counts a connection. The lock is held.
func (s *Connections) add(now time.Time, c *connection) {
	c.since.Store(now.UnixNano())
	s.open[c] = struct{}{}
	s.holders[c.holder]++
}

// remove ends the count of a connection, once. The lock is held.
func (s *Connections) remove(c *connection) {
	if _, ok := s.open[c]; !ok {
		return
	}
	delete(s.open, c)
	if s.holders[c.holder]--; s.holders[c.holder] == 0 {
		delete(s.holders, c.holder)
	}
}

// victims chooses the connections to close for room, of one holder if that is valid, and ends
// their count: the longest idle ones, or else those with the slowest heads. The lock is held.
func (s *Connections) victims(now time.Time, of netip.Addr) []*connection {
	var found [2][]*connection
	for c := range s.open {
		if of.IsValid() && c.holder != of {
			continue
		}
		switch state := c.state.Load(); {
		case state == connQuiet:
			found[0] = append(found[0], c)
		case state == connHead && now.UnixNano()-c.since.Load() >= int64(slowHead):
			found[1] = append(found[1], c)
		}
	}
	var chosen []*connection
	for i, state := range []int32{connQuiet, connHead} {
		slices.SortFunc(found[i], func(a, b *connection) int { return cmp.Compare(a.since.Load(), b.since.Load()) })
		for _, c := range found[i][:min(len(found[i]), 1+s.options.Max/evicted)] {
			// A request may have just begun.
			if c.state.CompareAndSwap(state, connClosed) {
				c.idle = state == connQuiet
				chosen = append(chosen, c)
				s.remove(c)
			}
		}
		if len(chosen) > 0 {
			break
		}
	}
	return chosen
}

// evict closes connections that victims has chosen.
func (s *Connections) evict(victims []*connection) {
	for _, c := range victims {
		reason := reasonSlow
		if c.idle {
			reason = reasonIdle
		}
		s.closed.WithLabelValues(reason).Inc()
		_ = c.Conn.Close() // Its server finds it closed.
	}
}

// The states of a connection: without a request, with an unfinished head, with a request in
// progress, and chosen to be closed.
const (
	connQuiet int32 = iota
	connHead
	connBusy
	connClosed
)

// connection is a connection within the bounds.
type connection struct {
	net.Conn
	bounds *Connections
	holder netip.Addr
	state  atomic.Int32
	// streams is the number of handlers of its HTTP/2 streams.
	streams atomic.Int32
	// since is the time of the last change to connQuiet or connHead, in ns.
	since atomic.Int64
	// idle says that it was idle when it was chosen to be closed.
	idle bool
	// frames reads frames of HTTP/2, nil until the first; coalescer writes them.
	frames *bufio.Reader
	// writing guards coalescer and coalesced, which writes what waits too long, nil until something waits.
	writing   sync.Mutex
	coalescer coalescer
	coalesced *time.Timer

	// mu guards head, the number of bytes of the unfinished head, and charge, which is what they hold: handlers of
	// HTTP/2 streams begin while the connection is read.
	mu     sync.Mutex
	head   int64
	charge Charge
}

// Read implements net.Conn. It counts the bytes of a head.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.readAhead(p)
	if n == 0 || c.state.Load() == connBusy {
		return n, err
	}
	if c.state.CompareAndSwap(connQuiet, connHead) {
		c.since.Store(time.Now().UnixNano())
	}
	if c.state.Load() == connClosed {
		return 0, errClosed
	}
	if c.count(int64(n)) != nil {
		c.state.Store(connClosed)
		c.bounds.closed.WithLabelValues(reasonHeads).Inc()
		c.finish()
		return 0, errHeads
	}
	return n, err
}

// readAhead reads bytes. net/http reads a frame of HTTP/2 with two system calls, one for its first 9 bytes; with a buffer
// mostly one is enough for all frames of a request. HTTP/1 and TLS never read so few bytes.
func (c *connection) readAhead(p []byte) (int, error) {
	switch {
	case c.frames != nil:
	case len(p) == frameHead:
		c.frames = bufio.NewReaderSize(c.Conn, freeHead)
	default:
		return c.Conn.Read(p)
	}
	return c.frames.Read(p)
}

// count counts n more bytes of the head, and charges those beyond freeHead.
func (c *connection) count(n int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head += n; c.head <= freeHead {
		return nil
	}
	if c.charge.budget == nil {
		c.charge = c.bounds.heads.ChargeAddress(c.RemoteAddr().String())
	}
	return c.charge.Take(c.head - c.charge.held)
}

// finish gives back what the head holds.
func (c *connection) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head = 0
	if c.charge.held > 0 {
		c.charge.Release()
	}
}

// begin notes that the head is whole: a request is in progress.
func (c *connection) begin() {
	c.finish()
	if !c.state.CompareAndSwap(connHead, connBusy) {
		c.state.CompareAndSwap(connQuiet, connBusy) // Its bytes came with those of the request before.
	}
}

// end notes that the request is over.
func (c *connection) end() {
	c.since.Store(time.Now().UnixNano())
	c.state.CompareAndSwap(connBusy, connQuiet)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.bounds.mu.Lock()
	c.bounds.remove(c)
	c.bounds.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite implements what [duplex.CloseWrite] asks for.
func (c *connection) CloseWrite() error { return duplex.CloseWrite(c.Conn) }

// boundOf returns the connection of these bounds below others that wrap it, nil if there is
// none.
func boundOf(c net.Conn) *connection {
	for c != nil {
		if found, ok := c.(*connection); ok {
			return found
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = wrapper.NetConn()
	}
	return nil
}

type boundKey struct{}

// apply lets a server's connections tell when a head ends and when a request does.
func (s *Connections) apply(server *http.Server) {
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(boundKey{}).(*connection)
		if r.ProtoMajor == 2 {
			s.serveStream(w, r, c, handler)
			return
		}
		if c != nil {
			c.begin()
		}
		handler.ServeHTTP(w, r)
	})
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if found := boundOf(c); found != nil {
			return context.WithValue(ctx, boundKey{}, found)
		}
		return ctx
	}
	server.ConnState = func(c net.Conn, state http.ConnState) {
		switch found := boundOf(c); {
		case found == nil:
		case state == http.StateIdle:
			found.end()
		case state == http.StateClosed:
			found.finish()
		}
	}
}
