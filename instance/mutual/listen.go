package mutual

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

// Listen returns a listener for an [http.Server] with [WithConn]. Each of its connections is TLS if
// the client begins so, and plain otherwise: probes and scrapers need no certificates then, and
// [Guard] answers them little else. protocols are those that clients may choose with TLS, in addition to the
// identity's own, HTTP/1.1. A server that allows "h2" must serve unencrypted HTTP/2: it does not see the TLS.
func (i *Identity) Listen(l net.Listener, protocols ...string) net.Listener {
	return listener{l, i, protocols}
}

// Scheme is how URLs of a server with the identity begin; nil is none.
func (i *Identity) Scheme() string {
	if i != nil {
		return "https"
	}
	return "http"
}

type listener struct {
	net.Listener
	identity  *Identity
	protocols []string
}

// Accept implements net.Listener. The handshake is part of the first read, within the server's
// limits on that.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, identity: l.identity, protocols: l.protocols}, nil
}

// ListenTo returns a listener whose connections are TLS, to clients with a certificate of a name
// only. Others get no byte of an answer. The handshake is part of the first read, which the caller
// bounds. A connection ends with its next read after the certificates were renewed.
func (i *Identity) ListenTo(l net.Listener, name string) net.Listener {
	return strict{l, i, name}
}

type strict struct {
	net.Listener
	identity *Identity
	name     string
}

// Accept implements net.Listener.
func (l strict) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	with := l.identity.current()
	config := with.server.Clone()
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.VerifyConnection = func(state tls.ConnectionState) error {
		return state.PeerCertificates[0].VerifyHostname(l.name)
	}
	return &passing{Conn: tls.Server(c, config), identity: l.identity, with: with}, nil
}

// passing is a connection that ends when the certificates are renewed.
type passing struct {
	*tls.Conn
	identity *Identity
	with     *material
	// shaken: the handshake has been tried. Only Read uses it.
	shaken bool
}

var errRenewed = errors.New("the certificates were renewed")

// Read implements net.Conn.
func (c *passing) Read(p []byte) (int, error) {
	if c.identity.renewed(c.with) {
		return 0, errRenewed
	}
	if !c.shaken {
		c.shaken = true
		if err := c.Handshake(); err != nil {
			c.identity.refused(time.Now(), c.RemoteAddr(), err)
			return 0, err
		}
	}
	return c.Conn.Read(p)
}

// conn is a connection that is TLS or plain from its first byte on.
type conn struct {
	net.Conn
	identity *Identity
	// protocols are those of Listen.
	protocols []string
	// begun is set after the first byte. secure is the connection's TLS, nil if it is plain, and
	// state that of the finished handshake. with is what it was made with, and set before state.
	begun  atomic.Bool
	secure atomic.Pointer[tls.Conn]
	state  atomic.Pointer[tls.ConnectionState]
	with   *material
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if s := c.secure.Load(); s != nil {
		return s.Read(p)
	}
	if c.begun.Load() || len(p) == 0 {
		return c.Conn.Read(p)
	}
	n, err := c.Conn.Read(p[:1])
	if n == 0 {
		return 0, err
	}
	c.begun.Store(true)
	const handshake = 22 // The record type of a client's first message (RFC 8446, 5.1).
	if p[0] != handshake {
		return n, err
	}
	c.with = c.identity.current()
	config := c.with.server
	if len(c.protocols) > 0 {
		config = config.Clone()
		config.NextProtos = append(slices.Clone(c.protocols), config.NextProtos...)
	}
	s := tls.Server(&began{c.Conn, p[:1:1]}, config)
	if err := s.Handshake(); err != nil {
		c.identity.refused(time.Now(), c.RemoteAddr(), err)
		_ = c.Conn.Close() // What follows is not a request.
		return 0, err
	}
	state := s.ConnectionState()
	c.state.Store(&state)
	c.secure.Store(s)
	return s.Read(p)
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if s := c.secure.Load(); s != nil {
		return s.Write(p)
	}
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if s := c.secure.Load(); s != nil {
		return s.Close()
	}
	return c.Conn.Close()
}

// NetConn returns the connection below, as that of crypto/tls does.
func (c *conn) NetConn() net.Conn { return c.Conn }

// CloseWrite implements what [duplex.CloseWrite] asks for.
func (c *conn) CloseWrite() error {
	if s := c.secure.Load(); s != nil {
		return s.CloseWrite()
	}
	return duplex.CloseWrite(c.Conn)
}

// began is a connection whose first bytes have been read.
type began struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (b *began) Read(p []byte) (int, error) {
	if len(b.first) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

// refusalPause is the time between two lines of a log about refused certificates: strangers must not
// fill it.
const refusalPause = time.Second

// refused logs why there is no connection with a client, if that is because of a certificate.
func (i *Identity) refused(at time.Time, client net.Addr, err error) {
	// A client that does not accept the server's certificate says so in an alert, which has no type.
	if !strings.Contains(err.Error(), "certificate") {
		return
	}
	last := i.complained.Load()
	if last != nil && at.Sub(*last) < refusalPause || !i.complained.CompareAndSwap(last, &at) {
		return
	}
	i.log.Warn().Err(err).Stringer("client", client).
		Msg("a connection over TLS was refused: client and server need certificates that have not expired, of authorities in the other's ca.crt")
}

type connKey struct{}

// WithConn is an [http.Server]'s ConnContext: it lets [Guard] know a request's connection.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// Rules say who may ask for what at a listener of [Identity.Listen].
type Rules struct {
	// Open are the paths that everybody may GET, also without TLS.
	Open []string
	// Callers returns the names of which the caller's certificate must have one, for the path of
	// a request; none if the caller needs TLS, but no certificate.
	Callers func(path string) []string
}

// Guard lets requests through as the rules say, and sets their TLS. Others get 401, as those with
// wrong credentials do. Requests at listeners that are not [Identity.Listen]'s pass: a Unix socket
// has its file's rights. A connection from before the certificates were renewed ends after the
// answer.
func Guard(next http.Handler, rules Rules) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connKey{}).(*conn)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		r.TLS = c.state.Load()
		open := (r.Method == http.MethodGet || r.Method == http.MethodHead) && slices.Contains(rules.Open, r.URL.Path)
		switch {
		case open:
		case r.TLS == nil:
			http.Error(w, "this address takes requests over TLS only: use https://", http.StatusUnauthorized)
			return
		default:
			if names := rules.Callers(r.URL.Path); len(names) > 0 && !isOne(r.TLS, names) {
				http.Error(w, "show a certificate of "+names[0], http.StatusUnauthorized)
				return
			}
		}
		if r.TLS != nil && c.identity.renewed(c.with) {
			// The authority of before may be trusted no more. The answer is the connection's last one, so
			// no request is lost.
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// isOne reports whether the other side has shown a certificate with one of the names.
func isOne(state *tls.ConnectionState, names []string) bool {
	return len(state.VerifiedChains) > 0 && slices.ContainsFunc(names, func(name string) bool {
		return state.PeerCertificates[0].VerifyHostname(name) == nil
	})
}
