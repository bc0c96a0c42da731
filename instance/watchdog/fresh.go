package watchdog

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// freshTime is how long after the end a connection may take to bring its first
// request.
const freshTime = 200 * time.Millisecond

// fresh are the connections that have not brought a request yet. An HTTP server
// that shuts down waits 5 s for them, and clients that give up leave some.
type fresh struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
}

// note is an http.Server's ConnState.
func (f *fresh) note(conn net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if state == http.StateNew {
		f.conns[conn] = true
	} else {
		delete(f.conns, conn)
	}
}

// close closes them.
func (f *fresh) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		_ = conn.Close()
	}
}
