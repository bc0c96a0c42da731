package async

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/faas-infer/faas-infer/provider/async/queue"
)

// Status is the state of the queue.
type Status struct {
	// Queued counts requests that wait, for their first or a later try. InFlight
	// counts those that are being executed or wait for their callback, Dead the dead
	// letters.
	Queued   uint64 `json:"queued"`
	InFlight int    `json:"inFlight"`
	Dead     uint64 `json:"dead"`
	// Bytes is the disk space of all requests that are not dead letters.
	Bytes uint64 `json:"bytes"`
	// Functions has the functions with such requests, sorted by name.
	Functions []FunctionStatus `json:"functions"`
	// Server is the NATS server: "embedded", "embedded at ADDRESS", or its
	// URL.
	Server string `json:"server"`
	// Problem is the reason why requests are refused, "" if they are accepted.
	Problem string `json:"problem,omitempty"`
}

// FunctionStatus counts the requests of one function.
type FunctionStatus struct {
	Name     string `json:"name"`
	Queued   uint64 `json:"queued"`
	InFlight int    `json:"inFlight"`
}

// Status reads the state of the queue from its streams.
func (a *Admin) Status(ctx context.Context) (Status, error) {
	s := Status{Server: a.server(), Functions: []FunctionStatus{}}
	if err := a.Broker.Usable(); err != nil {
		s.Problem = err.Error()
	}
	work, err := a.Broker.JetStream().Stream(ctx, queue.WorkStream)
	if err != nil {
		return s, err
	}
	info, err := work.Info(ctx, jetstream.WithSubjectFilter(queue.WorkSubjects+">"))
	if err != nil {
		return s, err
	}
	if s.Dead, err = a.Dead.Count(ctx); err != nil {
		return s, err
	}
	s.Queued, s.Bytes = info.State.Msgs, info.State.Bytes
	inHand := a.InHand()
	for subject, n := range info.State.Subjects {
		key := strings.TrimPrefix(subject, queue.WorkSubjects)
		f := FunctionStatus{Name: queue.FromSubjectKey(key), InFlight: inHand[key].Held}
		// The two numbers come from slightly different times.
		f.Queued = n - min(n, uint64(f.InFlight))
		s.InFlight += f.InFlight
		s.Functions = append(s.Functions, f)
	}
	s.Queued -= min(s.Queued, uint64(s.InFlight))
	slices.SortFunc(s.Functions, func(a, b FunctionStatus) int { return cmp.Compare(a.Name, b.Name) })
	return s, nil
}

func (a *Admin) server() string {
	if !a.Broker.Embedded() {
		return a.Broker.URL()
	}
	if at := a.Address(); at != "" {
		return "embedded at " + at
	}
	return "embedded"
}

func (a *Admin) status(w http.ResponseWriter, r *http.Request) error {
	s, err := a.Status(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, s)
}
