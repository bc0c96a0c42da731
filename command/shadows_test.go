package command

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pair"
)

// The provider tells a body with a certificate its shadows over TLS. It tells no
// other party.
func TestTellOverTLS(t *testing.T) {
	a := mutualtest.NewAuthority(t, time.Now().Add(time.Hour))
	party := func(a *mutualtest.Authority, name string) *mutual.Identity {
		dir := t.TempDir()
		a.Issue(t, dir, mutualtest.Certificate{Names: []string{name}})
		i, err := mutual.Open(dir, name, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	orders := make(chan pair.Order, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+pair.ShadowsPath, func(w http.ResponseWriter, r *http.Request) {
		var o pair.Order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			t.Error(err)
		}
		orders <- o
		w.WriteHeader(http.StatusNoContent)
	})
	serve := func(i *mutual.Identity) cluster.Instance {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: instances.Guarded(i, mux), ConnContext: mutual.WithConn}
		go func() { _ = server.Serve(i.Listen(l)) }()
		t.Cleanup(func() { _ = server.Close() })
		return cluster.Instance{Network: mutual.Network, Address: l.Addr().String()}
	}
	call := func(as string, body cluster.Instance) error {
		order, err := json.Marshal(pair.Order{Phi: "0:1"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ShadowPlatform(Base{}, nil, party(a, as).Dial, relayOf).Call(t.Context(), body, http.MethodPut, pair.ShadowsPath, order)
		return err
	}
	body := serve(party(a, mutual.InstanceName))
	if err := call(mutual.ProviderName, body); err != nil {
		t.Fatal(err)
	}
	if got := <-orders; got.Phi != "0:1" {
		t.Errorf("%+v", got)
	}
	impostor := serve(party(mutualtest.NewAuthority(t, time.Now().Add(time.Hour)), mutual.InstanceName))
	if err := call(mutual.ProviderName, impostor); err == nil {
		t.Error("a body of another authority was told")
	}
	if err := call(mutual.InstanceName, body); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("an instance tells a body: %v", err)
	}
}
