package testprovider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// StandIns answer requests in place of all instances of a cluster, by their addresses. Its
// methods are safe for concurrent use.
type StandIns struct {
	exec     func(address string, batch int) time.Duration
	server   *http.Server
	listener net.Listener
	done     chan struct{}

	mu     sync.Mutex
	served map[string]int
	gone   map[string]bool
	open   map[string]map[*connection]struct{}
	// routes answer further paths.
	routes map[string]func(address string, w http.ResponseWriter, r *http.Request)
	// dialled has the instances' addresses by those of the connections' other ends.
	dialled map[string]string
}

// errGone is the error of connections to lost instances.
var errGone = errors.New("no route to host")

// StartStandIns starts a server that answers each batch after the time that exec returns.
func StartStandIns(exec func(batch int) time.Duration) (*StandIns, error) {
	return StartStandInsOf(func(_ string, batch int) time.Duration { return exec(batch) })
}

// StartStandInsOf is StartStandIns for instances that differ; exec gets the address of the one that
// was sent the batch.
func StartStandInsOf(exec func(address string, batch int) time.Duration) (*StandIns, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	i := &StandIns{exec: exec, listener: l, done: make(chan struct{}), served: map[string]int{}, gone: map[string]bool{},
		routes: map[string]func(string, http.ResponseWriter, *http.Request){}, open: map[string]map[*connection]struct{}{}, dialled: map[string]string{}}
	i.server = &http.Server{Handler: i, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(i.done)
		_ = i.server.Serve(l)
	}()
	return i, nil
}

// Route makes the instances answer requests for a path by f, which gets the address of the one that was asked.
func (i *StandIns) Route(path string, f func(address string, w http.ResponseWriter, r *http.Request)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.routes[path] = f
}

// Close ends all connections.
func (i *StandIns) Close() error {
	err := i.server.Close()
	<-i.done
	return err
}

// Dial connects to the instance at an address.
func (i *StandIns) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	i.mu.Lock()
	gone := i.gone[address]
	i.mu.Unlock()
	if gone {
		return nil, fmt.Errorf("dial %s: %w", address, errGone)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", i.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, instances: i, address: address}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.dialled[conn.LocalAddr().String()] = address
	if i.open[address] == nil {
		i.open[address] = map[*connection]struct{}{}
	}
	i.open[address][c] = struct{}{}
	return c, nil
}

// Lose makes the instances at these addresses unreachable, as if their node were lost. It
// closes their connections and refuses new ones.
func (i *StandIns) Lose(addresses ...string) {
	i.mu.Lock()
	var broken []*connection
	for _, a := range addresses {
		i.gone[a] = true
		for c := range i.open[a] {
			broken = append(broken, c)
		}
	}
	i.mu.Unlock()
	for _, c := range broken {
		_ = c.Close()
	}
}

// Restore makes lost addresses reachable again. A cluster gives the addresses of lost pods
// to new ones.
func (i *StandIns) Restore(addresses ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, a := range addresses {
		delete(i.gone, a)
	}
}

// Served returns the number of batches sent to each address.
func (i *StandIns) Served() map[string]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.served)
}

// ServeHTTP implements [http.Handler]. It answers batches with their own bodies, paths of Route by its
// function, and all other requests with 200.
func (i *StandIns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	address, route := i.dialled[r.RemoteAddr], i.routes[r.URL.Path]
	i.mu.Unlock()
	if route != nil {
		route(address, w, r)
		return
	}
	if r.URL.Path != frame.Path {
		return // Health, readiness and resize requests get 200.
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	requests, err := frame.DecodeRequests(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	took := i.exec(address, len(requests))
	timer := time.After(took)
	select {
	case <-timer:
	case <-r.Context().Done():
		return
	}
	answers := make([]frame.Response, len(requests))
	for n := range requests {
		answers[n] = frame.Response{Status: http.StatusOK, Header: http.Header{}, Body: bytes.Clone(requests[n].Body)}
	}
	out, length := frame.EncodeResponses(answers)
	w.Header().Set("Content-Type", frame.ContentType)
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	w.Header().Set(frame.ExecHeader, strconv.FormatInt(took.Microseconds(), 10))
	_, _ = out.WriteTo(w)
}

// connection counts the batches sent over it, by the dialled address.
type connection struct {
	net.Conn
	instances *StandIns
	address   string
}

// batchLine is the beginning of each batch.
var batchLine = []byte("POST " + frame.Path + " ")

// Write implements [net.Conn].
func (c *connection) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, batchLine) {
		c.instances.mu.Lock()
		c.instances.served[c.address]++
		c.instances.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.instances.mu.Lock()
	delete(c.instances.open[c.address], c)
	delete(c.instances.dialled, c.LocalAddr().String())
	c.instances.mu.Unlock()
	return c.Conn.Close()
}
