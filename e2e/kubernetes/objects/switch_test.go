package objects

import (
	"context"
	"errors"
	"net"
	"sync"
)

// breaker is a network that can be cut.
type breaker struct {
	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

func newSwitch() *breaker { return &breaker{open: map[net.Conn]bool{}} }

func (b *breaker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cut {
		return nil, errors.Join(errors.New("the network is cut"), c.Close())
	}
	b.open[c] = true
	return c, nil
}

// off closes every connection, and refuses new ones.
func (b *breaker) off() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut = true
	for c := range b.open {
		_ = c.Close() // It is gone either way.
	}
	clear(b.open)
}

func (b *breaker) on() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut = false
}
