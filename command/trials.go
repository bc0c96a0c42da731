package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/control"
)

// Trials measure the models of all engines but ONNX Runtime with a whole GPU, in instances of their functions.
// ONNX models are predicted from their operators.
type Trials struct {
	// Dial connects to instances.
	Dial mutual.Dial
}

var _ control.Trials = Trials{}

// maxTrial bounds what an instance says of its trial, in bytes.
const maxTrial = 1 << 20

// Takes implements [control.Trials].
func (Trials) Takes(file string) bool { return engines.IsManifest(file) }

// Measure implements [control.Trials].
func (t Trials) Measure(ctx context.Context, in cluster.Instance, maxBatch int, until time.Duration) (*profiler.Profile, error) {
	text, err := callInstance(ctx, t.Dial, in, http.MethodPost, profile.TrialQuery(maxBatch, until), http.NoBody, maxTrial)
	if err != nil {
		return nil, err
	}
	var p profiler.Profile
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("read what it measured: %w", err)
	}
	if len(p.Measurements) == 0 {
		return nil, errors.New("it measured nothing")
	}
	return &p, nil
}

// callInstance makes a request to an instance's own routes and returns the answer, of which it reads limit bytes.
func callInstance(ctx context.Context, dial mutual.Dial, in cluster.Instance, method, path string, body io.Reader, limit int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://instance"+path, body)
	if err != nil {
		return nil, err
	}
	over := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial(ctx, in.Network, in.Address)
	}}
	answer, err := (&http.Client{Transport: over}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		complaint, _ := io.ReadAll(io.LimitReader(answer.Body, 300)) // The status says enough.
		return nil, fmt.Errorf("it answers %s: %s", answer.Status, strings.TrimSpace(string(complaint)))
	}
	return io.ReadAll(io.LimitReader(answer.Body, limit))
}
