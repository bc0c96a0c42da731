package faults

import (
	"io"
	"net"
	"sync"
)

// proxy passes connections on to an address, until they are cut.
type proxy struct {
	listener net.Listener
	to       string
	group    sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool
	isCut bool
}

// newProxy listens on a port of the loopback interface.
func newProxy(to string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, to: to, open: map[net.Conn]bool{}}
	p.group.Go(p.serve)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) serve() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.pass(in) })
	}
}

// pass joins a connection with a new one to the address.
func (p *proxy) pass(in net.Conn) {
	defer p.leave(in)
	if !p.enter(in) {
		return
	}
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer p.leave(out)
	if !p.enter(out) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = way[0].Close(), way[1].Close()
		})
	}
	both.Wait()
}

// enter reports whether a connection may stay.
func (p *proxy) enter(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isCut {
		p.open[c] = true
	}
	return !p.isCut
}

func (p *proxy) leave(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// cut closes all connections, and new ones at once, until mend.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for c := range p.open {
		_ = c.Close()
	}
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.cut()
	p.group.Wait()
}
