package asyfunc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/papers/asyfunc/dividing"
	"github.com/faas-infer/faas-infer/papers/asyfunc/layers"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pair"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pairing"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Shadows are the shadows of instances on a platform: it finds the parts of models and talks to bodies.
type Shadows struct {
	*dividing.Finder
	platform control.ShadowPlatform
}

var _ control.Shadows = Shadows{}

// byTCP is the time of tensors by TCP. It is assumed: kernels copy each byte several times, and through shared
// memory it is copied once.
var byTCP = shadow.Transfer{Fixed: 0.3, PerMiB: 0.5}

// newShadows returns the shadows of a platform. f has the models' profiles.
func newShadows(ctx context.Context, p control.ShadowPlatform, f *latency.Finder) Shadows {
	blocks := func(ctx context.Context, file string) (*shadow.Model, error) {
		text, err := p.Layers(ctx, file)
		if err != nil {
			return nil, err
		}
		return dividing.ReadBlocks(text)
	}
	transfer := func() shadow.Transfer { return byTCP }
	if p.SharedMemory {
		transfer = crossed(ctx, p.Log)
	}
	return Shadows{dividing.New(f, blocks, transfer), p}
}

// crossed returns a function that measures [layers.Crossing] when it is called first, [pairing.Relayed] at most.
func crossed(ctx context.Context, log zerolog.Logger) func() shadow.Transfer {
	return sync.OnceValue(func() shadow.Transfer {
		t, err := layers.Crossing(ctx)
		if err != nil {
			log.Warn().Err(err).Msg("parts of shadows are chosen with an assumed time between instances")
			return pairing.Relayed
		}
		// A moment at which the machine is busy must not make pairs dear for the provider's life.
		return shadow.Transfer{Fixed: min(t.Fixed, pairing.Relayed.Fixed), PerMiB: min(t.PerMiB, pairing.Relayed.PerMiB)}
	})
}

// Check implements [control.Shadows].
func (s Shadows) Check(f *provider.Function, file string) error {
	switch {
	case engines.IsManifest(file):
		return errors.New("the model runs in Python or in a model server, or a program works before and after it; only an ONNX model by itself can have shadows")
	case s.platform.Check != nil:
		return s.platform.Check(f)
	}
	return nil
}

// Divide implements [control.Shadows].
func (s Shadows) Divide(ctx context.Context, f *provider.Function, file string, planned func() (scaling.Function, capacity.Options)) (ways []control.Division, why string, err error) {
	found, why, err := s.Finder.Divide(ctx, f, file, planned)
	for _, d := range found {
		ways = append(ways, d)
	}
	return ways, why, err
}

// Unwanted implements [control.Shadows].
func (s Shadows) Unwanted() {
	if s.platform.Unwanted != nil {
		s.platform.Unwanted()
	}
}

// Pair implements [control.Shadows].
func (s Shadows) Pair(ctx context.Context, shadow, body cluster.InstanceID) error {
	if s.platform.Pair == nil {
		return nil // The next provider pairs a shadow again.
	}
	return s.platform.Pair(ctx, shadow, body)
}

// tellTime bounds telling a body its shadows. It opens its segments meanwhile.
const tellTime = 10 * time.Second

// Tell implements [control.Shadows].
func (s Shadows) Tell(ctx context.Context, body cluster.Instance, part string, shadows []cluster.Instance) error {
	order := pair.Order{Phi: part, Shadows: []pair.Address{}}
	for _, x := range shadows {
		order.Shadows = append(order.Shadows, s.addressOf(x))
	}
	text, err := json.Marshal(order)
	if err != nil {
		return err
	}
	_, err = s.callBody(ctx, body, http.MethodPut, text)
	return err
}

// Look implements [control.Shadows].
func (s Shadows) Look(ctx context.Context, body cluster.Instance, shadows []cluster.Instance) (r control.ShadowReport, err error) {
	text, err := s.callBody(ctx, body, http.MethodGet, nil)
	if err != nil {
		return r, err
	}
	var status pair.Status
	if err := json.Unmarshal(text, &status); err != nil {
		return r, fmt.Errorf("read what a body says of its shadows: %w", err)
	}
	for _, x := range shadows {
		if status.Useless(s.addressOf(x)) {
			r.Useless = append(r.Useless, x.ID)
		}
	}
	counted := &status.Counted
	r.Weights = status.Weights
	r.Counted = metrics.ShadowCounts{
		Rows: counted.Rows, Fallbacks: counted.Fallbacks,
		Relay: metrics.Durations{Count: counted.Relayed.Count, Sum: counted.Relayed.Sum, Buckets: map[float64]uint64{}},
	}
	for _, b := range counted.Relayed.Buckets {
		r.Counted.Relay.Buckets[b.Bound] = b.Count
	}
	return r, nil
}

// addressOf is where bodies connect to a shadow.
func (s Shadows) addressOf(shadow cluster.Instance) pair.Address {
	return pair.Address{Network: shadow.Network, Address: s.platform.Relay(shadow.Address)}
}

// callBody makes a request to a body's route for shadows and returns the answer.
func (s Shadows) callBody(ctx context.Context, body cluster.Instance, method string, text []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return s.platform.Call(ctx, body, method, pair.ShadowsPath, text)
}
