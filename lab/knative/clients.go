package knative

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// requestTime is how long a request may take before it counts as lost.
	requestTime = time.Minute
	// late is the time after which an answer counts as late.
	late = time.Second
)

// body is a request to the model with a black picture of 28 × 28.
var body = `{"instances":[[[` + repeated(28, "["+repeated(28, "0")+"]") + `]]]}`

// repeated returns n copies of a value, separated by commas.
func repeated(n int, value string) string {
	return strings.Join(slices.Repeat([]string{value}, n), ",")
}

// clients send requests to a system's model and count what becomes of them.
type clients struct {
	system *system
	client *http.Client

	mu sync.Mutex
	tally
}

// tally counts requests.
type tally struct {
	// sent includes the lost and the late ones.
	sent, late int
	// lost counts requests without a good answer, by reason.
	lost map[string]int
}

// losses returns the number of lost requests.
func (t tally) losses() (n int) {
	for _, of := range t.lost {
		n += of
	}
	return n
}

// String lists the reasons for which requests were lost.
func (t tally) String() string {
	if len(t.lost) == 0 {
		return "none lost"
	}
	var all []string
	for _, why := range slices.Sorted(maps.Keys(t.lost)) {
		all = append(all, fmt.Sprintf("%d × %s", t.lost[why], why))
	}
	return strings.Join(all, "; ")
}

func newClients(s *system) *clients {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	return &clients{
		system: s,
		client: &http.Client{Timeout: requestTime, Transport: transport},
		tally:  tally{lost: map[string]int{}},
	}
}

// close closes the connections.
func (c *clients) close() { c.client.CloseIdleConnections() }

// ask sends one request. An answer other than 200 is an error.
func (c *clients) ask(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.system.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Host = c.system.host
	response, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%d %s", response.StatusCode, strings.TrimSpace(string(text)))
	case !strings.Contains(string(text), "predictions"):
		return fmt.Errorf("no prediction in %.200q", text)
	}
	return nil
}

// load sends requests at a rate, evenly, while f runs. It counts them all.
func (c *clients) load(ctx context.Context, rate float64, f func() error) error {
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.Tick(time.Duration(float64(time.Second) / rate))
		for {
			select {
			case <-stop:
				return
			case <-tick:
				all.Go(func() { c.count(ctx) })
			}
		}
	})
	err := f()
	close(stop)
	all.Wait()
	return err
}

// count sends one request and counts it. A request that the end of the measurement cuts short is none.
func (c *clients) count(ctx context.Context) {
	began := time.Now()
	err := c.ask(ctx)
	took := time.Since(began)
	if err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	switch {
	case err != nil && (len(c.lost) < 20 || c.lost[err.Error()] > 0):
		c.lost[err.Error()]++
	case err != nil:
		c.lost["other reasons"]++
	case took > late:
		c.late++
	}
}

// take returns what was counted since it was called last.
func (c *clients) take() tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tally
	c.tally = tally{lost: map[string]int{}}
	return t
}
