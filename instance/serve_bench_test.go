package instance

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// BenchmarkServe is what a request costs besides the model: over a Unix
// socket, alone and in batches of 32.
func BenchmarkServe(b *testing.B) {
	d := &doubler{maxBatch: 32, width: 1}
	s, err := NewServer(d, Options{Name: "double", MaxBatch: 32, Logger: zerolog.Nop()})
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.TempDir(), "s")
	listener, err := Listen(context.Background(), "unix://"+path)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, s, []net.Listener{listener}, nil, zerolog.Nop(), func() error { return nil })
	}()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	client := &http.Client{Transport: transport}
	send := func(b *testing.B, path, contentType string, body []byte) {
		response, err := client.Post("http://instance"+path, contentType, bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
			b.Fatal(response.StatusCode, err)
		}
		response.Body.Close()
	}
	one := invoke(`{"instances":[[1]]}`)
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			send(b, "/", "", one.Body)
		}
	})
	b.Run("batch", func(b *testing.B) {
		members := make([]frame.Request, 32)
		for i := range members {
			members[i] = one
		}
		buffers, _ := frame.EncodeRequests(members)
		var body bytes.Buffer
		if _, err := buffers.WriteTo(&body); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			send(b, frame.Path, frame.ContentType, body.Bytes())
		}
	})
	transport.CloseIdleConnections()
	cancel()
	if err := <-served; err != nil {
		b.Fatal(err)
	}
}
