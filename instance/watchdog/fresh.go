package watchdog

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// freshTime is how long after the start of a shutdown a new connection may take to send
// its first request.
const freshTime = 200 * time.Millisecond

// fresh holds the connections that have not sent a request yet. net/http waits 5 s for
// them at a shutdown, and clients that give up leave some behind.
type fresh struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
}

// note is for http.Server.ConnState.
func (f *fresh) note(conn net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if state == http.StateNew {
		f.conns[conn] = true
	} else {
		delete(f.conns, conn)
	}
}

// close closes the connections.
func (f *fresh) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		_ = conn.Close()
	}
}
