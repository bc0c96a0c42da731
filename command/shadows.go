package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/pair"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling/pairing"
	"github.com/faas-infer/faas-infer/shadow"
)

// Shadows are the shadows of instances on any platform: it finds the layers of models and talks to bodies.
// Platforms add what differs.
type Shadows struct {
	models *children.Models
	// dial connects to bodies.
	dial mutual.Dial
	// relay is where bodies connect to a shadow that listens at an address.
	relay func(address string) string
}

// Shadows returns the shadows of a platform on which bodies connect to relay(a) if a shadow listens at a.
// dial connects to bodies.
func (f *ProviderFlags) Shadows(dial mutual.Dial, relay func(address string) string) Shadows {
	return Shadows{f.Models(), dial, relay}
}

// localShadows are the shadows of instances on this machine.
type localShadows struct {
	Shadows
	beside *standbys
	// transfer is the time of tensors through shared memory.
	transfer func() shadow.Transfer
}

var _ control.Shadows = localShadows{}

// crossed returns a function that measures [profile.Crossing] when it is called first, [pairing.Relayed] at most.
func crossed(ctx context.Context, log zerolog.Logger) func() shadow.Transfer {
	return sync.OnceValue(func() shadow.Transfer {
		t, err := profile.Crossing(ctx)
		if err != nil {
			log.Warn().Err(err).Msg("parts of shadows are chosen with an assumed time between instances")
			return pairing.Relayed
		}
		// A moment at which the machine is busy must not make pairs dear for the provider's life.
		return shadow.Transfer{Fixed: min(t.Fixed, pairing.Relayed.Fixed), PerMiB: min(t.PerMiB, pairing.Relayed.PerMiB)}
	})
}

// Unwanted implements [control.Shadows].
func (s localShadows) Unwanted() { s.beside.shadow.Drop(forShadows) }

// Transfer implements [control.Shadows].
func (s localShadows) Transfer() shadow.Transfer { return s.transfer() }

// Pair implements [control.Shadows]: the next provider pairs a shadow again.
func (localShadows) Pair(context.Context, cluster.InstanceID, cluster.InstanceID) error { return nil }

// tellTime bounds telling a body its shadows. It opens its segments meanwhile.
const tellTime = 10 * time.Second

// Check implements [control.Shadows].
func (Shadows) Check(_ *provider.Function, file string) error {
	switch {
	case engines.IsManifest(file):
		return errors.New("the model runs in Python or in a model server, or a program works before and after it; only an ONNX model by itself can have shadows")
	case bundle.IsCutting(file):
		return errors.New("the model is cut over several instances")
	}
	return nil
}

// Blocks implements [control.Shadows].
func (s Shadows) Blocks(ctx context.Context, file string) (*shadow.Model, error) {
	text, err := s.models.Run(ctx, children.Background, filepath.Dir(file), "profile", "layers", file, "--json", "--database", s.models.Database, "--prepared", s.models.Prepared)
	if err != nil {
		return nil, err
	}
	return blocksOf(text)
}

// blocksOf reads what "profile layers" prints. A reason that may pass is no [shadow.UndividedError]: it is
// neither stored nor counted against a deployment.
func blocksOf(text []byte) (*shadow.Model, error) {
	var found struct {
		Model     *shadow.Model `json:"model"`
		Undivided string        `json:"undivided"`
		Passing   bool          `json:"passing"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("read the layer profile: %w", err)
	}
	if found.Passing {
		return nil, errors.New(found.Undivided)
	}
	if found.Model == nil || len(found.Model.Blocks) < 2 {
		return nil, &shadow.UndividedError{Why: found.Undivided}
	}
	return found.Model, nil
}

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
	return pair.Address{Network: shadow.Network, Address: s.relay(shadow.Address)}
}

// maxStatus bounds what a body says of its shadows, in bytes.
const maxStatus = 64 << 10

// callBody makes a request to a body's route for shadows and returns the answer.
func (s Shadows) callBody(ctx context.Context, body cluster.Instance, method string, text []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return callInstance(ctx, s.dial, body, method, pair.ShadowsPath, bytes.NewReader(text), maxStatus)
}

// relayOf is where bodies connect to a shadow that listens at a socket.
func relayOf(socket string) string { return socket + ".relay" }

// pairArguments are the arguments of a body or of a shadow that listens at a socket; none for another
// instance.
func pairArguments(spec cluster.InstanceSpec, socket string) []string {
	switch {
	case spec.Role == cluster.Shadow:
		return []string{"--shadow", spec.Part, "--relay", "unix://" + relayOf(socket)}
	case spec.Paired:
		return []string{"--body", "--concurrency", "2"}
	}
	return nil
}
