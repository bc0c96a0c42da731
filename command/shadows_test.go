package command

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/pair"
)

// What a body says of its shadows tells which are of no use: those without a connection, those that are
// far slower than it is, and those that it does not know.
func TestUselessShadows(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "body")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	at := func(id string) cluster.Instance {
		return cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: cluster.InstanceID(id)}, Network: "unix", Address: "/" + id}
	}
	status := pair.Status{Row: 0.01, Shadows: []pair.ShadowStatus{
		{Address: addressOf(at("good")), State: "connected", Row: 0.01}, {Address: addressOf(at("new")), State: "connected"},
		{Address: addressOf(at("gone")), State: "not connected", Row: 0.01}, {Address: addressOf(at("hung")), State: "connected", Row: 0.05},
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pair.ShadowsPath, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(status) })
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	body := cluster.Instance{Network: "unix", Address: socket}
	useless, err := localShadows{}.Useless(t.Context(), body, []cluster.Instance{at("good"), at("new"), at("gone"), at("hung"), at("unknown")})
	if err != nil || !slices.Equal(useless, []cluster.InstanceID{"gone", "hung", "unknown"}) {
		t.Errorf("%v, %v", useless, err)
	}
	if err := (localShadows{}).Tell(t.Context(), body, "0:1", nil); err == nil {
		t.Error("a body that refuses to be told was told")
	}
}
