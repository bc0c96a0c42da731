package kubernetes

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
	"github.com/faas-infer/faas-infer/model/content"
)

// An instance with a certificate takes its model from the provider over TLS, and from nobody over a plain connection.
func TestModelsAreSentOverTLS(t *testing.T) {
	authority := mutualtest.NewAuthority(t, time.Now().Add(time.Hour))
	identity := func(name string) *mutual.Identity {
		dir := t.TempDir()
		authority.Issue(t, dir, mutualtest.Certificate{Names: []string{name}})
		i, err := mutual.Open(dir, name, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	receiver, err := content.NewReceiver(t.TempDir(), strings.Repeat("a", 64))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rules := mutual.Rules{Callers: func(string) []string { return []string{mutual.ProviderName} }}
	server := &http.Server{ConnContext: mutual.WithConn, Handler: mutual.Guard(receiver, rules)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(identity(mutual.InstanceName).Listen(l))
	}()
	defer func() {
		_ = server.Close()
		<-ended
	}()

	b, _ := starter()
	b.options.Dial = identity(mutual.ProviderName).Dial
	b.options.Content = func(cluster.InstanceSpec) string { return strings.Repeat("a", 64) }
	asked := make(chan error, 1)
	b.options.Feed = func(ctx context.Context, client *http.Client, _ cluster.InstanceSpec, address string,
		_ func(int64)) error {
		_, err := content.Ask(ctx, client, address)
		asked <- err
		return nil
	}
	for network, served := range map[string]bool{mutual.Network: true, "tcp": false} {
		f := &feeding{of: b, sent: make(chan struct{}, 1), failed: make(chan error, 1)}
		f.begin(network, l.Addr().String())
		if err := <-asked; (err == nil) != served {
			t.Errorf("over %s: %v", network, err)
		}
		f.stop()
	}
}
