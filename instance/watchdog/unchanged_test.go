package watchdog

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/async"
	"github.com/faas-infer/faas-infer/provider/forward"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/store"
)

// head is the head of a message as it was on the wire: its first line, and the values of each
// header in their order.
type head struct {
	first  string
	values map[string][]string
}

// readHead reads a head byte by byte as it is.
func readHead(r *bufio.Reader) (h head, err error) {
	h.values = map[string][]string{}
	for first := true; ; first = false {
		line, err := r.ReadString('\n')
		if err != nil {
			return h, err
		}
		switch line = strings.TrimSuffix(line, "\r\n"); {
		case line == "":
			return h, nil
		case first:
			h.first = line
		default:
			name, value, _ := strings.Cut(line, ":")
			name = http.CanonicalHeaderKey(name)
			h.values[name] = append(h.values[name], strings.TrimSpace(value))
		}
	}
}

// sent is a request with everything that a careless proxy changes. Its line and Host are added.
var sent = map[string][]string{
	"X-Repeated":      {"b", "a", "b"},
	"X-Latin":         {"caf\xe9"},
	"X-Empty":         {""},
	"X-Quoted":        {`"a, b";c=%zz`},
	"Cookie":          {"a=1; b=2"},
	"Accept-Encoding": {"br"},
	"Authorization":   {"Bearer x"},
	"Content-Type":    {"text/x-odd"},
	"User-Agent":      {"odd/1"},
}

// hops are the headers of the client's connection, which must not get further.
var hops = map[string][]string{
	"Connection": {"X-Hop, x-other-hop"}, "X-Hop": {"1"}, "X-Other-Hop": {"1"}, "Keep-Alive": {"timeout=5"}, "Proxy-Authorization": {"Basic x"},
}

// raw writes a message.
func raw(w io.Writer, first string, body []byte, headers ...map[string][]string) {
	var b bytes.Buffer
	b.WriteString(first + "\r\n")
	for _, of := range headers {
		for name, values := range of {
			for _, v := range values {
				fmt.Fprintf(&b, "%s: %s\r\n", name, v)
			}
		}
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", len(body))
	b.Write(body)
	_, _ = w.Write(b.Bytes())
}

// wire is an HTTP server that shows what came over its connections, and answers all the same.
type wire struct {
	net.Listener
	got chan message
}

// message is a request or an answer.
type message struct {
	head
	body string
}

func newWire(t *testing.T, answer map[string][]string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{l, make(chan message, 1)}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { conn.Close() })
			serving.Go(func() {
				defer stop()
				defer conn.Close()
				for in := bufio.NewReader(conn); ; {
					h, err := readHead(in)
					if err != nil {
						return
					}
					m := message{head: h}
					if m.body, err = bodyOf(in, h); err != nil {
						t.Errorf("%q: %v", h.first, err)
						return
					}
					raw(conn, "HTTP/1.1 203 Odd", []byte(m.body), answer, map[string][]string{"Connection": {"X-Hop"}})
					w.got <- m
				}
			})
		}
	})
	return w
}

// bodyOf reads the body of a message whose length its head says.
func bodyOf(in *bufio.Reader, h head) (string, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST / HTTP/1.1\r\nHost: x\r\n")
	for _, name := range []string{"Content-Length", "Transfer-Encoding"} {
		for _, v := range h.values[name] {
			fmt.Fprintf(&b, "%s: %s\r\n", name, v)
		}
	}
	b.WriteString("\r\n")
	r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(&b, in)))
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

// controller runs one function, whose instance the test has started.
type controller struct{ *forward.Forwarder }

func (c controller) Deploy(context.Context, *provider.Function) (provider.Dispatcher, error) {
	return c.Forwarder, nil
}
func (controller) Remove(context.Context, string) error { return nil }
func (controller) Scale(string, uint64) error           { return nil }
func (controller) Restoring(func(string) bool)          {}
func (controller) Status(string) (provider.Status, bool) {
	return provider.Status{}, true
}

// serveProvider serves a provider with its queue, in front of the instance at an address.
func serveProvider(t *testing.T, address string, dial mutual.Dial) (at string) {
	t.Helper()
	kept, err := store.Open(filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	m := metrics.New(registry)
	c := controller{forward.New(forward.Options{ColdWait: time.Minute, Recorder: m.Function("f.openfaas-fn"), Dial: dial})}
	c.Up("i", mutual.Network, address, 1)
	s := provider.New(provider.Options{Store: kept, Controller: c, Metrics: m, Gatherer: registry, Hosts: []string{"*"}, Logger: zerolog.Nop()})
	queue, err := async.Open(t.Context(), async.Options{Dir: t.TempDir(), Listen: "off", Invoker: s, Functions: s, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	s.UseAsync(queue)
	served := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		served.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		queue.Close(ctx)
		c.Forwarder.Close()
		kept.Close()
	})
	resp, err := http.Post(served.URL+"/system/functions", "application/json", strings.NewReader(`{"service":"f","image":"i"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp.Status)
	}
	if err := queue.Start(); err != nil {
		t.Fatal(err)
	}
	return served.Listener.Addr().String()
}

// serveInstance serves a watchdog, with TLS if it has an identity.
func serveInstance(t *testing.T, env map[string]string, identity *mutual.Identity) (address string) {
	t.Helper()
	i := prepare(t, env)
	i.server.identity = identity
	if err := i.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer close(i.stopped)
		i.err = i.server.Serve(ctx, []net.Listener{l}, func() error { return nil })
	}()
	t.Cleanup(func() {
		stop()
		<-i.stopped
	})
	return l.Addr().String()
}

// identities returns those of an instance and of the provider.
func identities(t *testing.T) (instance, client *mutual.Identity) {
	t.Helper()
	a := mutualtest.NewAuthority(t, time.Now().Add(time.Hour))
	open := func(name string) *mutual.Identity {
		dir := t.TempDir()
		a.Issue(t, dir, mutualtest.Certificate{Names: []string{name}})
		i, err := mutual.Open(dir, name, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	return open(mutual.InstanceName), open(mutual.ProviderName)
}

// exchangeRaw sends one request and returns the answer.
func exchangeRaw(t *testing.T, address, first string, body []byte, headers ...map[string][]string) message {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw(conn, first, body, headers...)
	in := bufio.NewReader(conn)
	h, err := readHead(in)
	if err != nil {
		t.Fatal(err)
	}
	m := message{head: h}
	if m.body, err = bodyOf(in, h); err != nil {
		t.Fatal(err)
	}
	return m
}

// arrived compares a request's headers with those that were sent: they must be the same, but for
// those of the connection.
func arrived(t *testing.T, what string, got map[string][]string) {
	t.Helper()
	for name, want := range sent {
		if !slices.Equal(got[name], want) {
			t.Errorf("%s: %s is %q, want %q", what, name, got[name], want)
		}
	}
	for name := range hops {
		if v, ok := got[name]; ok {
			t.Errorf("%s: %s of the client's connection came through: %q", what, name, v)
		}
	}
}

// targets are paths and queries, as they are on the wire.
var targets = []string{
	"/", "/a%2Fb/%7e%7E/c%20d;e=1/", "/a//b/../c", "/x|y\"z", "/caf\xe9", "/100%25",
	"/a?x=1;y=2", "/a?a=1&b=2;c=3&d=4", "/a?q=100%", "/a?q=%zz&r=1", "/a?sig=ab;cd&n=1", "/a?z=1&a=2&z=3", "/a?A+b=%41+%2b", "/a??x",
	"/a?u=http://h/p?q", "/a?caf\xe9", "/?=&&=",
}

// TestWhatAProxyPassesOnIsUnchanged compares what a client sends with what a function gets, byte by
// byte, over every way; and the function's answer with what the client or the callback gets.
func TestWhatAProxyPassesOnIsUnchanged(t *testing.T) {
	var every bytes.Buffer
	for b := range 256 {
		every.WriteByte(byte(b))
	}
	answer := map[string][]string{"X-Repeated": {"2", "1"}, "X-Latin": {"caf\xe9"}, "Content-Type": {"text/x-odd"}, "X-Hop": {"1"}}
	for _, over := range []string{"plain", "TLS"} {
		var instance, client *mutual.Identity
		dial := new(net.Dialer).DialContext
		if over == "TLS" {
			instance, client = identities(t)
			dial = client.Dial
		} else {
			dial = func(ctx context.Context, _, address string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			}
		}
		back := newWire(t, nil)
		callback := map[string][]string{"X-Callback-Url": {"http://" + back.Addr().String() + "/back?b;a=%"}}
		host := map[string][]string{"Host": {"f.example"}}
		t.Run("http "+over, func(t *testing.T) {
			function := newWire(t, answer)
			at := serveProvider(t, serveInstance(t, map[string]string{
				"mode": "http", "fprocess": "sleep 1000", "upstream_url": "http://" + function.Addr().String(),
			}, instance), dial)
			for _, target := range targets {
				got := exchangeRaw(t, at, "POST /function/f"+target+" HTTP/1.1", every.Bytes(), host, sent, hops)
				if got.first != "HTTP/1.1 203 Non-Authoritative Information" || got.body != every.String() {
					t.Fatalf("%q: %q %q", target, got.first, got.body)
				}
				answered(t, target, got.values, answer)
				m := <-function.got
				passed(t, "sync "+target, m, target, every.String())
			}
			for _, target := range targets {
				got := exchangeRaw(t, at, "POST /async-function/f"+target+" HTTP/1.1", every.Bytes(), host, sent, hops, callback)
				if got.first != "HTTP/1.1 202 Accepted" {
					t.Fatalf("%q: %q %q", target, got.first, got.body)
				}
				passed(t, "async "+target, <-function.got, target, every.String())
				m := <-back.got
				if m.first != "POST /back?b;a=% HTTP/1.1" || m.body != every.String() {
					t.Errorf("callback %q %q", m.first, m.body)
				}
				answered(t, "callback "+target, m.values, answer)
			}
		})
		t.Run("classic "+over, func(t *testing.T) {
			at := serveProvider(t, serveInstance(t, map[string]string{"mode": "classic", "fprocess": "sh -c 'env -0; cat'"}, instance), dial)
			for _, target := range targets {
				got := exchangeRaw(t, at, "POST /function/f"+target+" HTTP/1.1", every.Bytes(), host, sent, hops)
				forked(t, "sync "+target, got.body, target, every.String())
				exchangeRaw(t, at, "POST /async-function/f"+target+" HTTP/1.1", every.Bytes(), host, sent, hops, callback)
				forked(t, "async "+target, (<-back.got).body, target, every.String())
			}
		})
	}
}

// answered checks that the headers of an answer came back.
func answered(t *testing.T, what string, got, want map[string][]string) {
	t.Helper()
	for name, values := range want {
		if name == "X-Hop" { // It belongs to the connection of the function's program.
			values = nil
		}
		if !slices.Equal(got[name], values) {
			t.Errorf("%s: the answer's %s is %q, want %q", what, name, got[name], values)
		}
	}
}

// passed checks what a function of mode http got.
func passed(t *testing.T, what string, got message, target, body string) {
	t.Helper()
	if want := "POST " + target + " HTTP/1.1"; got.first != want {
		t.Errorf("%s: the line is %q, want %q", what, got.first, want)
	}
	if got.body != body {
		t.Errorf("%s: the body is %q", what, got.body)
	}
	if got := got.values["Host"]; !slices.Equal(got, []string{"f.example"}) {
		t.Errorf("%s: Host is %q", what, got)
	}
	arrived(t, what, got.values)
}

// forked checks the environment and the standard input of a forked program.
func forked(t *testing.T, what, got, target, body string) {
	t.Helper()
	env, isBody := strings.CutSuffix(got, body)
	if !isBody {
		t.Fatalf("%s: %q does not end in the body", what, got)
	}
	values := map[string]string{}
	for entry := range strings.SplitSeq(env, "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	_, query, _ := strings.Cut(target, "?")
	if values["Http_Query"] != query {
		t.Errorf("%s: Http_Query is %q, want %q", what, values["Http_Query"], query)
	}
	for name := range maps.Keys(sent) {
		variable := "Http_" + strings.ReplaceAll(name, "-", "_")
		if want := strings.Join(sent[name], ", "); values[variable] != want {
			t.Errorf("%s: %s is %q, want %q", what, variable, values[variable], want)
		}
	}
	for name := range hops {
		if v, ok := values["Http_"+strings.ReplaceAll(name, "-", "_")]; ok {
			t.Errorf("%s: %s of the client's connection came through: %q", what, name, v)
		}
	}
}
