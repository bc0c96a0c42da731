package forkjoin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/faas-infer/faas-infer/health/probe"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/cut"
)

const (
	// WorkersPath is the master's route for the addresses of its workers.
	WorkersPath = "/v1/workers"
	// maxTold bounds the body of a request to it in bytes.
	maxTold = 256 << 10
	// maxSocket is the longest path of a Unix socket in bytes (unix(7)).
	maxSocket = 107
)

// Address says where a worker listens.
type Address struct {
	// Member is the worker's number in the plan, from 1.
	Member int `json:"member"`
	// Network is "unix", "tcp" or [mutual.Network], Address the socket's absolute path or host:port.
	Network string `json:"network"`
	Address string `json:"address"`
}

// told is the body of a request to [WorkersPath].
type told struct {
	Plan    string    `json:"plan"`
	Workers []Address `json:"workers"`
}

// Workers knows where a master's workers are. [Workers.ServeHTTP] takes their addresses;
// until a worker has one, and after it broke off, its [Remote] waits for a new one. It is safe
// for concurrent use.
type Workers struct {
	plan        string
	members     int
	connections int
	dial        mutual.Dial

	mu sync.Mutex
	at map[int]*place
	// changed is closed when at changes.
	changed chan struct{}
	resent  *prometheus.CounterVec
}

// place is one worker's address, as long as it has that one.
type place struct {
	Address
	over *http.Transport
	// calls counts the calls that it has. unanswered: the last one that ended had no answer in
	// time. The register's lock guards both.
	calls      int
	unanswered bool
}

// NewWorkers makes the register of a plan's workers. Up to concurrency batches run at the
// same time. dial connects to the workers; nil means a nil [mutual.Identity]'s.
func NewWorkers(p *cut.Plan, concurrency int, dial mutual.Dial) *Workers {
	if dial == nil {
		dial = (*mutual.Identity)(nil).Dial
	}
	return &Workers{
		plan: PlanName(p), members: p.Members, connections: max(1, concurrency), dial: dial,
		at: make(map[int]*place), changed: make(chan struct{}),
		resent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "faas_infer_instance_parts_resent_total",
			Help: "Parts sent once more, because the worker broke off, by the worker's number.",
		}, []string{"member"}),
	}
}

// ServeHTTP takes PUT with the addresses of the workers: {"plan": PLAN, "workers": [{"member":
// 1, "network": "unix", "address": "/path"}]}, where PLAN is [PlanName]'s. They replace the
// earlier ones; the batches that wait for one of them go on. The answer is 204, 404 for another
// plan, or 400 with the reason. GET answers the same JSON.
func (w *Workers) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPut:
	case http.MethodGet:
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(w.list()) // The client may have hung up.
		return
	default:
		out.Header().Set("Allow", "GET, PUT")
		refuse(out, http.StatusMethodNotAllowed, fmt.Errorf("%s takes PUT and GET, not %s", WorkersPath, r.Method))
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(out, r.Body, maxTold))
	if err != nil {
		status := http.StatusBadRequest
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(out, status, fmt.Errorf("reading the workers' addresses: %w", err))
		return
	}
	t, err := readTold(text, w.members)
	switch {
	case err != nil:
		refuse(out, http.StatusBadRequest, err)
	case t.Plan != w.plan:
		refuse(out, http.StatusNotFound, fmt.Errorf("the workers are of the plan %.32q; this is the master of the plan %q", t.Plan, w.plan))
	default:
		w.Set(t.Workers)
		out.WriteHeader(http.StatusNoContent)
	}
}

func refuse(out http.ResponseWriter, status int, err error) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_ = json.NewEncoder(out).Encode(map[string]string{"error": err.Error()}) // The client may have hung up.
}

// readTold reads the body of a request to [WorkersPath].
func readTold(text []byte, members int) (*told, error) {
	t := new(told)
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("the workers' addresses are not JSON: %w", err)
	}
	if t.Plan == "" {
		return nil, errors.New("plan is missing: give the first 16 digits of the plan's hash")
	}
	seen := make(map[int]bool)
	for _, a := range t.Workers {
		if a.Member < 1 || a.Member >= members {
			return nil, fmt.Errorf("member is %d: the workers are members 1 to %d", a.Member, members-1)
		}
		if seen[a.Member] {
			return nil, fmt.Errorf("member %d is given twice", a.Member)
		}
		seen[a.Member] = true
		if err := a.check(); err != nil {
			return nil, fmt.Errorf("member %d: %w", a.Member, err)
		}
	}
	return t, nil
}

func (a Address) check() error {
	switch a.Network {
	case "unix":
		if !filepath.IsAbs(a.Address) || len(a.Address) > maxSocket {
			return fmt.Errorf("address is %.200q: give the absolute path of a socket, of at most %d bytes", a.Address, maxSocket)
		}
		return nil
	case "tcp", mutual.Network:
		host, port, err := net.SplitHostPort(a.Address)
		n, wrong := strconv.ParseUint(port, 10, 16)
		if err != nil || wrong != nil || n == 0 || host == "" {
			return fmt.Errorf("address is %.200q: give host:port", a.Address)
		}
		return nil
	}
	return fmt.Errorf("network is %.20q: give unix, tcp or %s", a.Network, mutual.Network)
}

// Set replaces the addresses of the workers. Connections to those that are gone are closed
// once their answers have come.
func (w *Workers) Set(to []Address) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.at
	w.at = make(map[int]*place, len(to))
	for _, a := range to {
		p := before[a.Member]
		if p != nil && p.Address == a { // One that broke off has no other address yet.
			delete(before, a.Member)
		} else {
			p = &place{Address: a, over: upstream.NewTransport(w.dial, a.Network, a.Address, w.connections)}
		}
		w.at[a.Member] = p
	}
	for _, old := range before {
		old.over.CloseIdleConnections()
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// list returns what Set got last, by member.
func (w *Workers) list() told {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := told{Plan: w.plan, Workers: []Address{}}
	for member := range w.members {
		if p := w.at[member]; p != nil {
			t.Workers = append(t.Workers, p.Address)
		}
	}
	return t
}

// look returns a worker's place, nil if it has none, and a channel that is closed when that
// changes.
func (w *Workers) look(member int) (*place, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at[member], w.changed
}

// begin counts a call at a place, until end is called with its error.
func (w *Workers) begin(at *place) (end func(err error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at.calls++
	return func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		at.calls--
		at.unanswered = errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	}
}

// aliveTime is how long a worker may take to answer a health question. The master that asks is asked
// itself meanwhile.
const aliveTime = 100 * time.Millisecond

// Alive asks the workers from which an answer is outstanding whether they live. The error names one
// that takes connections and does not answer, for example because it is stopped; one that takes no
// connection has exited, and is replaced.
func (w *Workers) Alive() error {
	w.mu.Lock()
	var doubtful []*place
	for _, at := range w.at {
		if at.calls > 0 || at.unanswered {
			doubtful = append(doubtful, at)
		}
	}
	w.mu.Unlock()
	silent := make([]error, len(doubtful))
	var asked sync.WaitGroup
	for i, at := range doubtful {
		asked.Go(func() {
			err := probe.Alive(w.dial, at.Network, at.Address.Address, aliveTime)
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.EAGAIN) {
				silent[i] = fmt.Errorf("worker %d at %s does not answer: %w", at.Member, at.Address.Address, err)
			}
		})
	}
	asked.Wait()
	return errors.Join(silent...)
}

// first waits until a worker has an address.
func (w *Workers) first(ctx context.Context, member int) (*place, error) {
	for {
		at, changed := w.look(member)
		if at != nil {
			return at, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("worker %d has no address yet: %w", member, ctx.Err())
		}
	}
}

// pause is how long a worker that broke off has before it is tried at its old address.
const pause = 100 * time.Millisecond

// next waits until a worker that broke off has another address, or listens at its old one
// after a pause.
func (w *Workers) next(ctx context.Context, member int, old *place) (*place, error) {
	again := time.Tick(pause)
	for {
		at, changed := w.look(member)
		if at != nil && at != old {
			return at, nil
		}
		select {
		case <-changed:
		case <-again:
			if at == old && old.listens(ctx) {
				return old, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("worker %d was not replaced in time: %w", member, ctx.Err())
		}
	}
}

// listens reports whether a process takes connections at the address.
func (p *place) listens(ctx context.Context) bool {
	dialer := net.Dialer{Timeout: pause}
	network := p.Network
	if network == mutual.Network {
		network = "tcp"
	}
	c, err := dialer.DialContext(ctx, network, p.Address.Address)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// Close closes the idle connections.
func (w *Workers) Close() error {
	w.Set(nil)
	return nil
}

// Describe implements prometheus.Collector.
func (w *Workers) Describe(ch chan<- *prometheus.Desc) { w.resent.Describe(ch) }

// Collect implements prometheus.Collector.
func (w *Workers) Collect(ch chan<- prometheus.Metric) { w.resent.Collect(ch) }
