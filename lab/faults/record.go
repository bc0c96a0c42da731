package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// source is a target's requests as a history has them.
type source struct {
	function *function
	async    bool
	guest    bool
	// first is the number of the first request; the next one has step more.
	first, step int
	slo, bound  time.Duration
}

// number is that of a target's request.
func (s source) number(index int) int { return s.first + index*s.step }

// at names a request: its source and its index there.
type at struct{ source, index int }

// calledBack is one callback.
type calledBack struct {
	at     time.Time
	status int
	hash   Hash
}

// recorder keeps what comes back during one run. Its methods may be used at the same time.
type recorder struct {
	run  int
	base string

	mu      sync.Mutex
	sources []source
	hashes  map[at]Hash
	backs   map[at][]calledBack
	strays  []Stray
	seen    []observed
}

// observed is what a load generator tells that began at a time. Its targets are the
// recorder's sources from first on.
type observed struct {
	first int
	began time.Time
	all   []load.Observed
}

func newRecorder(run int, base string) *recorder {
	return &recorder{run: run, base: base, hashes: map[at]Hash{}, backs: map[at][]calledBack{}}
}

// add takes a source, and lets the target send its requests and tell of the answers.
func (r *recorder) add(s source, t *load.Target) (id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id = len(r.sources)
	r.sources = append(r.sources, s)
	t.Name, t.Header = s.function.name, s.function.header
	t.Body = func(i int) []byte { return s.function.body(s.number(i)) }
	if s.async {
		t.HeaderOf = func(i int) http.Header {
			return http.Header{"X-Callback-Url": {fmt.Sprintf("%s/%d/%d/%d", r.base, r.run, id, i)}}
		}
		return id
	}
	t.Verify = func(i int, body []byte) error {
		hash := s.function.hash(body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hashes[at{id, i}] = hash
		return nil // The checker says whether it is the right one.
	}
	return id
}

// callback takes one that came to a path of this run.
func (r *recorder) callback(path string, source, index, status int, body []byte) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if source < 0 || source >= len(r.sources) || !r.sources[source].async || index < 0 {
		r.strays = append(r.strays, Stray{path})
		return
	}
	c := calledBack{at: now, status: status}
	if status >= 200 && status <= 299 {
		c.hash = r.sources[source].function.hash(body)
	}
	r.backs[at{source, index}] = append(r.backs[at{source, index}], c)
}

// history is what became of all requests, in times from a beginning.
func (r *recorder) history(began time.Time) *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &History{Strays: r.strays}
	for _, seen := range r.seen {
		for _, o := range seen.all {
			h.Requests = append(h.Requests, r.request(len(h.Requests), seen, o, began))
		}
	}
	return h
}

// request is what became of one.
func (r *recorder) request(n int, seen observed, o load.Observed, began time.Time) Request {
	id := at{seen.first + o.Target, o.Index}
	s := r.sources[id.source]
	due := seen.began.Sub(began) + o.At
	q := Request{
		ID: n, Function: s.function.name, Async: s.async, Guest: s.guest, Intended: due, Sent: due + o.Lag,
		Unsent: !o.Sent, Want: s.function.want(s.number(o.Index)), SLO: s.slo, Bound: s.bound, Answers: []Answer{},
	}
	switch {
	case !o.Sent:
	case o.Status != 0:
		q.Answers = append(q.Answers, Answer{At: due + o.Latency, Status: o.Status, Hash: r.hashes[id]})
	case dialing(o.Err):
		q.Refused = true
	default:
		q.Broken = fmt.Sprint(o.Err)
	}
	for _, c := range r.backs[id] {
		q.Answers = append(q.Answers, Answer{At: c.at.Sub(began), Status: c.status, Hash: c.hash, Callback: true})
	}
	return q
}

// dialing reports whether no connection was made.
func dialing(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// missing is how many of the requests that were accepted have not been called back.
func (r *recorder) missing(seen observed) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range seen.all {
		id := at{seen.first + o.Target, o.Index}
		if r.sources[id.source].async && o.Status/100 == 2 && len(r.backs[id]) == 0 {
			n++
		}
	}
	return n
}

// answered counts the requests of the load that began with a source, and those with a right answer, that
// were due from a time of that load until another.
func (r *recorder) answered(first int, from, until time.Duration) (s Share) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, seen := range r.seen {
		if seen.first != first {
			continue
		}
		for _, o := range seen.all {
			if o.At < from || o.At >= until {
				continue
			}
			q := r.request(0, seen, o, seen.began)
			if s.all++; len(q.Answers) > 0 && q.Answers[0].good() && q.Answers[0].Hash == q.Want {
				s.within++
			}
		}
	}
	return s
}

// callbacks is a server to which results are posted, of one run after the other.
type callbacks struct {
	url    string
	server *http.Server

	mu      sync.Mutex
	current *recorder
	// late counts callbacks of runs that have been judged.
	late int
}

func newCallbacks() (*callbacks, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &callbacks{url: "http://" + l.Addr().String()}
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
	go func() { _ = c.server.Serve(l) }()
	return c, nil
}

// record begins a run.
func (c *callbacks) record(run int) *recorder {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = newRecorder(run, c.url)
	return c.current
}

// ServeHTTP takes one result, posted to /RUN/SOURCE/INDEX.
func (c *callbacks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest) // It comes once more.
		return
	}
	c.mu.Lock()
	current := c.current
	var id [3]int
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i := range id {
		id[i] = -1
		if n, err := strconv.Atoi(parts[min(i, len(parts)-1)]); err == nil && len(parts) == len(id) {
			id[i] = n
		}
	}
	if current == nil || id[0] >= 0 && id[0] < current.run {
		if id[0] > 0 { // Run 0 measures, and is not judged.
			c.late++
		}
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	status, _ := strconv.Atoi(r.Header.Get("X-Function-Status"))
	if id[0] != current.run {
		id[1] = -1
	}
	current.callback(r.URL.Path, id[1], id[2], status, body)
}

func (c *callbacks) close() { _ = c.server.Close() }

// timeout is how long a request may stay without an answer until it counts as lost, after
// its intended time; maxInFlight how many may be unanswered.
const (
	timeout     = 30 * time.Second
	maxInFlight = 1 << 15
)

// patience is how long callbacks may take to come after the load: the queue hands out what
// a dead provider had after 10 s, and tries again later and later.
const patience = time.Minute

// drive sends the requests of targets, the sources from first on, for a time. It returns
// once all have been answered and called back, or count as lost, and when it began.
func (r *recorder) drive(ctx context.Context, first int, targets []load.Target, d time.Duration, seed uint64) (began time.Time, err error) {
	seen := observed{first: first}
	ran, err := load.Run(ctx, load.Options{
		Targets: targets, Duration: d, Seed: seed, MaxInFlight: maxInFlight, Timeout: timeout,
		Observe: func(o load.Observed) { seen.all = append(seen.all, o) },
	})
	if err != nil {
		return began, err
	}
	seen.began = ran.Began
	for deadline := time.Now().Add(patience); r.missing(seen) > 0 && time.Now().Before(deadline); {
		if err := rig.Pause(ctx, 20*time.Millisecond); err != nil {
			return began, err
		}
	}
	// What is called back twice is so soon after.
	if err := rig.Pause(ctx, 200*time.Millisecond); err != nil {
		return began, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, seen)
	return ran.Began, nil
}

// post sends one request and reads its answer.
func post(ctx context.Context, client *http.Client, url string, header http.Header, body []byte) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}
