package relay

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
)

// party opens the identity of a party with a certificate of an authority.
func party(t testing.TB, a *mutualtest.Authority, name string) *mutual.Identity {
	t.Helper()
	i, _ := renewable(t, a, name)
	return i
}

// renewable opens an identity and returns its directory, too.
func renewable(t testing.TB, a *mutualtest.Authority, name string) (*mutual.Identity, string) {
	t.Helper()
	dir := t.TempDir()
	a.Issue(t, dir, mutualtest.Certificate{Names: []string{name}})
	i, err := mutual.Open(dir, name, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return i, dir
}

// Over TLS a job's tensors come back as they went, and they go with the messages. Only instances reach the
// shadow: others, and who has no certificate or does not begin with TLS, compute nothing there.
func TestOverTLS(t *testing.T) {
	a := mutualtest.NewAuthority(t, time.Now().Add(time.Hour))
	shadow, dir := renewable(t, a, mutual.InstanceName)
	body := party(t, a, mutual.InstanceName)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := servedAt(t, shadow.ListenTo(l, mutual.InstanceName), fits, echo{})
	p, err := Dial(t.Context(), body.Dial, mutual.Network, address, fits)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m, err := NewMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Retire() }()
	for _, size := range []int{8, 4096, 3 << 20} {
		j := jobOf(bytes.Repeat(floats(1, 2), size/8), make([]byte, size))
		j.Memory = m
		if _, err := p.Run(t.Context(), j); err != nil || !bytes.Equal(j.Into[0], j.Inputs[0].Data) || p.Shares() {
			t.Errorf("%d bytes: %v, equal %v, shares %v", size, err, bytes.Equal(j.Into[0], j.Inputs[0].Data), p.Shares())
		}
	}
	// With renewed certificates the connection ends, at the latest after the next job, and a new one begins.
	a.Issue(t, dir, mutualtest.Certificate{Names: []string{mutual.InstanceName}})
	for ended := false; !ended; {
		_, err := p.Run(t.Context(), jobOf(floats(1, 2), make([]byte, 8)))
		if err != nil && !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
		ended = err != nil
	}
	if p, err := Dial(t.Context(), body.Dial, mutual.Network, address, fits); err != nil {
		t.Error(err)
	} else {
		p.Close()
	}
	for name, who := range map[string]struct {
		dial    mutual.Dial
		network string
	}{
		"plain":                {plain, "tcp"},
		"the provider":         {party(t, a, mutual.ProviderName).Dial, mutual.Network},
		"of another authority": {party(t, mutualtest.NewAuthority(t, time.Now().Add(time.Hour)), mutual.InstanceName).Dial, mutual.Network},
		"without an identity":  {plain, mutual.Network},
	} {
		if p, err := Dial(t.Context(), who.dial, who.network, address, fits); err == nil {
			t.Errorf("%s: connected", name)
			p.Close()
		}
	}
}

// A job that nobody needs is dropped also if the limit of a later one has passed, which had been its
// connection's.
func TestDropAfterALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		p := &Peer{conn: here, ended: make(chan struct{}), pending: map[uint64]*call{}}
		defer here.Close()
		if err := here.SetWriteDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		go p.drop(7)
		if err := there.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n, err := there.Read(make([]byte, 100)); n == 0 || err != nil {
			t.Errorf("%d bytes came, %v", n, err)
		}
		if p.err != nil && !errors.Is(p.err, net.ErrClosed) {
			t.Error(p.err)
		}
	})
}
