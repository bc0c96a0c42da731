package command

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
	"github.com/faas-infer/faas-infer/instance/pair"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling/pairing"
	"github.com/faas-infer/faas-infer/shadow"
)

// What a body says of its shadows tells which are of no use: those without a connection, those that are
// far slower than it is, and those that it does not know; and what it counted.
func TestShadowReports(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "body")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	at := func(id string) cluster.Instance {
		return cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: cluster.InstanceID(id)}, Network: "unix", Address: "/" + id}
	}
	shadows := Shadows{dial: (*mutual.Identity)(nil).Dial, relay: relayOf}
	addressOf := shadows.addressOf
	status := pair.Status{Row: 0.01, Shadows: []pair.ShadowStatus{
		{Address: addressOf(at("good")), State: "connected", Row: 0.01}, {Address: addressOf(at("new")), State: "connected"},
		{Address: addressOf(at("gone")), State: "not connected", Row: 0.01}, {Address: addressOf(at("hung")), State: "connected", Row: 0.05},
	}, Weights: 100, Counted: pair.Counts{
		Rows: 7, Fallbacks: map[string]float64{"late": 2}, Relayed: pair.Durations{Count: 3, Sum: 0.5, Buckets: []pair.Bucket{{Bound: 0.1, Count: 1}, {Bound: 0.4, Count: 3}}},
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pair.ShadowsPath, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(status) })
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	body := cluster.Instance{Network: "unix", Address: socket}
	report, err := shadows.Look(t.Context(), body, []cluster.Instance{at("good"), at("new"), at("gone"), at("hung"), at("unknown")})
	if err != nil || !slices.Equal(report.Useless, []cluster.InstanceID{"gone", "hung", "unknown"}) {
		t.Errorf("%v, %v", report.Useless, err)
	}
	counted := metrics.ShadowCounts{Rows: 7, Fallbacks: map[string]float64{"late": 2}, Relay: metrics.Durations{Count: 3, Sum: 0.5, Buckets: map[float64]uint64{0.1: 1, 0.4: 3}}}
	if report.Weights != 100 || !reflect.DeepEqual(report.Counted, counted) {
		t.Errorf("%+v", report)
	}
	if err := shadows.Tell(t.Context(), body, "0:1", nil); err == nil {
		t.Error("a body that refuses to be told was told")
	}
}

// The time between instances is measured, once, with the assumed one as its bound, and assumed if that fails.
func TestCrossingsAreMeasured(t *testing.T) {
	transfer := crossed(t.Context(), zerolog.Nop())
	if first := (localShadows{transfer: transfer}).Transfer(); first.Fixed <= 0 || first.Fixed > pairing.Relayed.Fixed || first.PerMiB > pairing.Relayed.PerMiB || first != transfer() {
		t.Errorf("%+v, and then %+v", first, transfer())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := crossed(ended, zerolog.Nop())(); got != pairing.Relayed {
		t.Errorf("after the end %+v", got)
	}
}

// The provider tells a body with a certificate its shadows over TLS, at the addresses of their relays. It tells
// no other party.
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
	partner := cluster.Instance{Network: mutual.Network, Address: "10.0.0.7:8080"}
	s := Shadows{dial: party(a, mutual.ProviderName).Dial, relay: func(string) string { return "10.0.0.7:8090" }}
	body := serve(party(a, mutual.InstanceName))
	if err := s.Tell(t.Context(), body, "0:1", []cluster.Instance{partner}); err != nil {
		t.Fatal(err)
	}
	if got := <-orders; len(got.Shadows) != 1 || got.Shadows[0] != (pair.Address{Network: mutual.Network, Address: "10.0.0.7:8090"}) {
		t.Errorf("%+v", got)
	}
	impostor := serve(party(mutualtest.NewAuthority(t, time.Now().Add(time.Hour)), mutual.InstanceName))
	if err := s.Tell(t.Context(), impostor, "0:1", nil); err == nil {
		t.Error("a body of another authority was told")
	}
	s.dial = party(a, mutual.InstanceName).Dial
	if err := s.Tell(t.Context(), body, "0:1", nil); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("an instance tells a body: %v", err)
	}
}

// A model cannot be divided for reasons of its own. Reasons that may pass are tried again.
func TestBlocksOf(t *testing.T) {
	for text, undivided := range map[string]bool{
		`{"model": {"blocks": [{}]}, "undivided": "its weights are packed"}`:                true,
		`{"model": {"blocks": [{}]}}`:                                                       true,
		`{"model": {"blocks": [{}]}, "undivided": "it is being prepared", "passing": true}`: false,
		`{"model": `: false,
	} {
		m, err := blocksOf([]byte(text))
		if err == nil || m != nil || errors.As(err, new(*shadow.UndividedError)) != undivided {
			t.Errorf("%s: %v, %v", text, m, err)
		}
	}
	if m, err := blocksOf([]byte(`{"model": {"blocks": [{}, {}]}}`)); err != nil || len(m.Blocks) != 2 {
		t.Errorf("%v, %v", m, err)
	}
}
