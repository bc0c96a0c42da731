package asyfunc

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pair"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pairing"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// What a body says of its shadows tells which are of no use: those without a connection, those that are
// far slower than it is, and those that it does not know; and what it counted.
func TestShadowReports(t *testing.T) {
	at := func(id string) cluster.Instance {
		return cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: cluster.InstanceID(id)}, Network: "unix", Address: "/" + id}
	}
	var status pair.Status
	answer := func(_ context.Context, _ cluster.Instance, method, path string, text []byte) ([]byte, error) {
		if path != pair.ShadowsPath {
			t.Errorf("%s was asked for", path)
		}
		if method == http.MethodPut {
			var o pair.Order
			if err := json.Unmarshal(text, &o); err != nil || o.Phi != "0:1" || len(o.Shadows) != 1 || o.Shadows[0] != (pair.Address{Network: "unix", Address: "/good.relay"}) {
				t.Errorf("%+v was told, %v", o, err)
			}
			return nil, errors.New("it refuses")
		}
		return json.Marshal(status)
	}
	shadows := Shadows{platform: control.ShadowPlatform{Call: answer, Relay: func(address string) string { return address + ".relay" }}}
	addressOf := shadows.addressOf
	status = pair.Status{Row: 0.01, Shadows: []pair.ShadowStatus{
		{Address: addressOf(at("good")), State: "connected", Row: 0.01}, {Address: addressOf(at("new")), State: "connected"},
		{Address: addressOf(at("gone")), State: "not connected", Row: 0.01}, {Address: addressOf(at("hung")), State: "connected", Row: 0.05},
	}, Weights: 100, Counted: pair.Counts{
		Rows: 7, Fallbacks: map[string]float64{"late": 2}, Relayed: pair.Durations{Count: 3, Sum: 0.5, Buckets: []pair.Bucket{{Bound: 0.1, Count: 1}, {Bound: 0.4, Count: 3}}},
	}}
	var body cluster.Instance
	report, err := shadows.Look(t.Context(), body, []cluster.Instance{at("good"), at("new"), at("gone"), at("hung"), at("unknown")})
	if err != nil || !slices.Equal(report.Useless, []cluster.InstanceID{"gone", "hung", "unknown"}) {
		t.Errorf("%v, %v", report.Useless, err)
	}
	counted := metrics.ShadowCounts{Rows: 7, Fallbacks: map[string]float64{"late": 2}, Relay: metrics.Durations{Count: 3, Sum: 0.5, Buckets: map[float64]uint64{0.1: 1, 0.4: 3}}}
	if report.Weights != 100 || !reflect.DeepEqual(report.Counted, counted) {
		t.Errorf("%+v", report)
	}
	if err := shadows.Tell(t.Context(), body, "0:1", []cluster.Instance{at("good")}); err == nil {
		t.Error("a body that refuses to be told was told")
	}
}

// The time between instances is measured, once, with the assumed one as its bound, and assumed if that fails.
func TestCrossingsAreMeasured(t *testing.T) {
	transfer := crossed(t.Context(), zerolog.Nop())
	if first := transfer(); first.Fixed <= 0 || first.Fixed > pairing.Relayed.Fixed || first.PerMiB > pairing.Relayed.PerMiB || first != transfer() {
		t.Errorf("%+v, and then %+v", first, transfer())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := crossed(ended, zerolog.Nop())(); got != pairing.Relayed {
		t.Errorf("after the end %+v", got)
	}
}

// Only an ONNX model by itself can have shadows, and only where the platform has them.
func TestCheck(t *testing.T) {
	refuses := errors.New("no copies")
	s := Shadows{platform: control.ShadowPlatform{Check: func(*provider.Function) error { return refuses }}}
	if err := s.Check(&provider.Function{}, "/images/1/bundle.yaml"); err == nil || !strings.Contains(err.Error(), "runs in Python") {
		t.Error(err)
	}
	if err := s.Check(&provider.Function{}, "/images/1/model.onnx"); !errors.Is(err, refuses) {
		t.Error(err)
	}
	if err := (Shadows{}).Check(&provider.Function{}, "/images/1/model.onnx"); err != nil {
		t.Error(err)
	}
}
