package provider

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/web"
)

// dialFrom connects to a server from an address of the loopback network.
func dialFrom(t *testing.T, server *httptest.Server, address string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c, err := d.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// promise sends the head of a request with a body of 32 MiB, and some of that.
func promise(t *testing.T, c net.Conn, function string, some int) {
	t.Helper()
	head := fmt.Sprintf("POST /function/%s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", function, 32<<20)
	if _, err := io.WriteString(c, head+strings.Repeat("x", some)); err != nil {
		t.Fatal(err)
	}
}

// clientFrom is a client with an address of its own.
func clientFrom(t *testing.T, address string) *http.Client {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: d.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// eventually fails the test if a condition does not hold within a minute.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A thousand clients that announce the largest body and send nothing stop nobody.
func TestIdleSocketsStopNobody(t *testing.T) {
	const sockets = 1000
	r := invoker(t, echo, func(o *Options) { o.Bodies = web.NewBodyReader(DefaultMaxBody, DefaultBodyTimeout, 256<<20) })
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	defer server.CloseClientConnections()
	for range sockets {
		promise(t, dialFrom(t, server, "127.0.0.1"), "mnist", 0)
	}
	eventually(t, "all wait for their bodies", func() bool { return r.bodies.Held() >= sockets*firstBuffer })
	for _, address := range []string{"127.0.0.1", "127.0.0.2"} {
		client := clientFrom(t, address)
		for i := range 100 {
			size := []int{10, 3000, 700_000, 8 << 20}[i%4]
			var body io.Reader = strings.NewReader(strings.Repeat("x", size))
			if i%8 >= 4 {
				body = io.MultiReader(body) // Of unknown length.
			}
			resp, err := client.Post(server.URL+"/function/mnist", "text/plain", body)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != 200 || n != int64(size) {
				t.Fatalf("%s, request %d with %d bytes: %s, %d bytes, %v", address, i, size, resp.Status, n, err)
			}
		}
	}
}

// A client, or a function, that takes all it can get leaves room for others.
func TestGreedyOnesLeaveRoom(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name            string
		address, target func(i int) string
		whose           string
	}{
		{"a client", func(int) string { return "127.0.0.2" }, func(i int) string { return []string{"mnist", "mnist.team-a", "third"}[i%3] }, "this client's"},
		{"a function", func(i int) string { return fmt.Sprintf("127.0.1.%d", i+1) }, func(int) string { return "mnist" }, "this function's"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := invoker(t, echo, func(o *Options) { o.Bodies = web.NewBodyReader(DefaultMaxBody, DefaultBodyTimeout, 64*mib) })
			r.deploy(t, func(d *types.FunctionDeployment) { d.Service = "third" })
			r.deploy(t, func(d *types.FunctionDeployment) { d.Service = "other" })
			server := httptest.NewServer(r.Handler())
			defer server.Close()
			defer server.CloseClientConnections()
			var refused string
			for i := 0; refused == ""; i++ {
				if i > 60 {
					t.Fatal("nobody is refused")
				}
				before := r.bodies.Held()
				conn := dialFrom(t, server, c.address(i))
				promise(t, conn, c.target(i), 512<<10)
				answered := make(chan string, 1)
				go func() {
					text, _ := io.ReadAll(conn)
					answered <- string(text)
				}()
				eventually(t, "it holds more, or is refused", func() bool {
					select {
					case refused = <-answered:
						return true
					default:
						return r.bodies.Held() >= before+mib
					}
				})
			}
			if !strings.HasPrefix(refused, "HTTP/1.1 429 ") || !strings.Contains(refused, c.whose) || !strings.Contains(refused, "\r\nRetry-After: 1\r\n") {
				t.Errorf("the one too many is answered %q", refused)
			}
			client := clientFrom(t, "127.0.0.3")
			for range 20 {
				resp, err := client.Post(server.URL+"/function/other", "text/plain", strings.NewReader(strings.Repeat("x", 4*mib)))
				if err != nil {
					t.Fatal(err)
				}
				n, err := io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || n != 4*mib {
					t.Fatalf("another one gets %s, %d bytes, %v", resp.Status, n, err)
				}
			}
		})
	}
}
