package async

import (
	"cmp"
	"context"
	"net/http"
	"slices"

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
	// BestEffort counts the best-effort requests in Queued and InFlight.
	BestEffort uint64 `json:"bestEffort"`
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
	Name       string `json:"name"`
	Queued     uint64 `json:"queued"`
	InFlight   int    `json:"inFlight"`
	BestEffort uint64 `json:"bestEffort"`
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
	info, err := work.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return s, err
	}
	if s.Dead, err = a.Dead.Count(ctx); err != nil {
		return s, err
	}
	s.Queued, s.Bytes = info.State.Msgs, info.State.Bytes
	inHand, functions := a.InHand(), map[string]*FunctionStatus{}
	for subject, n := range info.State.Subjects {
		key, best := keyOf(subject)
		f := functions[key]
		if f == nil {
			f = &FunctionStatus{Name: queue.FromSubjectKey(key), InFlight: inHand[key].Held}
			functions[key] = f
		}
		f.Queued += n
		if best {
			f.BestEffort = n
		}
	}
	for _, f := range functions {
		// The two numbers come from slightly different times.
		f.Queued -= min(f.Queued, uint64(f.InFlight))
		s.InFlight, s.BestEffort = s.InFlight+f.InFlight, s.BestEffort+f.BestEffort
		s.Functions = append(s.Functions, *f)
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
