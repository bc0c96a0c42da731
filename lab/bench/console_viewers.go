package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// viewers are open streams of a provider.
type viewers struct {
	connections []net.Conn
	group       sync.WaitGroup
	closing     atomic.Bool
	// bytes counts what was read, and ended the read streams that the provider ended.
	bytes, ended atomic.Int64
}

// viewerRounds is how often the load is measured with and without viewers, in turn.
const viewerRounds = 3

// openViewers opens n streams, of which every second one is never read. It returns when the others have got their first
// events.
func openViewers(ctx context.Context, provider string, n int) (*viewers, error) {
	at, err := url.Parse(provider)
	if err != nil {
		return nil, err
	}
	v := &viewers{}
	answers := make(chan error, n)
	for i := range n {
		if err := v.open(ctx, at.Host, i%2 == 0, answers); err != nil {
			v.close()
			return nil, err
		}
	}
	for range (n + 1) / 2 {
		select {
		case err = <-answers:
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(time.Minute):
			err = errors.New("viewers wait for their first events for more than a minute")
		}
		if err != nil {
			v.close()
			return nil, err
		}
	}
	return v, nil
}

// open opens a stream. If it is read, its first event or an error comes to answers.
func (v *viewers) open(ctx context.Context, host string, read bool, answers chan<- error) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return fmt.Errorf("viewer %d: %w", len(v.connections)+1, err)
	}
	v.connections = append(v.connections, c)
	if t, ok := c.(*net.TCPConn); ok && !read {
		_ = t.SetReadBuffer(4 << 10) // Without it the kernel would read for it for long.
	}
	if _, err := fmt.Fprintf(c, "GET /system/stream HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
		return fmt.Errorf("viewer %d: %w", len(v.connections), err)
	}
	if !read {
		return nil
	}
	v.group.Go(func() {
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("GET /system/stream: %s", answer.Status)
		}
		if err == nil {
			_, err = io.ReadFull(answer.Body, make([]byte, 1))
		}
		if answers <- err; err != nil {
			return
		}
		_, _ = io.Copy(counting{&v.bytes}, answer.Body) // Its end counts, whatever the reason.
		if !v.closing.Load() {
			v.ended.Add(1)
		}
	})
	return nil
}

// counting counts what is written to it.
type counting struct{ n *atomic.Int64 }

// Write implements io.Writer.
func (c counting) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

func (v *viewers) close() {
	v.closing.Store(true)
	for _, c := range v.connections {
		_ = c.Close()
	}
	v.group.Wait()
}

// measureViewers loads a function with and without n viewers in turn, each time for a while.
func measureViewers(ctx context.Context, r *report.Report, provider string, target load.Target, n int, each time.Duration) error {
	var alone, watched, added []float64
	var requests, lost, ended int
	var read int64
	send := func(seed int) (*load.TargetResult, error) {
		ran, err := load.Run(ctx, load.Options{Targets: []load.Target{target}, Duration: each, Seed: uint64(seed)})
		if err != nil {
			return nil, err
		}
		return &ran.Targets[0], nil
	}
	for round := range viewerRounds {
		without, err := send(round)
		if err != nil {
			return err
		}
		if err := rig.AllGood(without); err != nil {
			return fmt.Errorf("without viewers: %w", err)
		}
		v, err := openViewers(ctx, provider, n)
		if err != nil {
			return err
		}
		with, err := send(round)
		ended, read = ended+int(v.ended.Load()), read+v.bytes.Load()
		v.close()
		if err != nil {
			return err
		}
		requests, lost = requests+with.Requests, lost+with.Requests-with.Good
		alone = append(alone, rig.Milliseconds(without.Latency.P99))
		watched = append(watched, rig.Milliseconds(with.Latency.P99))
		added = append(added, watched[round]-alone[round])
	}
	note := fmt.Sprintf("%d viewers, of whom half never read, median of %d rounds of %v at %g requests/s", n, viewerRounds, each, target.Rate)
	r.Add("viewers.lost", float64(lost), "requests", fmt.Sprintf("of %d without a good answer, with %d viewers", requests, n))
	r.Add("viewers.ended", float64(ended), "streams", "of viewers who read, and whom the provider left")
	r.Add("viewers.read_mib", float64(read)/(1<<20), "MiB", "what they have read in all rounds")
	r.Add("viewers.p99_ms", rig.Median(watched), "ms", note)
	r.Add("viewers.p99_alone_ms", rig.Median(alone), "ms", "the same load without viewers")
	r.Add("viewers.p99_added_ms", rig.Median(added), "ms", note)
	return nil
}
