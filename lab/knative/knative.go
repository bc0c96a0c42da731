// Package knative measures faas-infer beside Knative Serving: on one real kubelet, with one image
// of a model server, it compares the time from zero instances to the first answer, and counts the
// requests that rollouts lose. It runs none of Knative's networking layers; [Ingress] takes their
// place. Begin with Bench and Run.
package knative

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/kubelet"
)

// Bench are the options of the measurement.
type Bench struct {
	// Cold is the number of cold starts of each system, and Rollouts that of its rollouts. 0
	// leaves the figures out.
	Cold, Rollouts int
	// Block is the number of rollouts of one system before the other has its turn.
	Block int
	// Rate is the number of requests per second during a rollout.
	Rate float64
	// Each is the shortest time from one rollout to the next.
	Each time.Duration
	// CPU is the most that an instance has of a core, as in "400m".
	CPU string
	// Log gets a message for each step.
	Log io.Writer
}

// Default returns the options that the published figures have.
func Default() Bench {
	return Bench{Cold: 12, Rollouts: 50, Block: 10, Rate: 30, Each: 20 * time.Second, CPU: "400m", Log: io.Discard}
}

// Check returns an error that names the flag of an option that makes no sense.
func (b Bench) Check() error {
	switch {
	case b.Cold < 0 || b.Rollouts < 0 || b.Cold+b.Rollouts == 0:
		return fmt.Errorf("--cold %d, --rollouts %d: neither may be below 0, and one must be above", b.Cold, b.Rollouts)
	case b.Block < 1:
		return fmt.Errorf("--block %d: it must be at least 1", b.Block)
	case b.Each < 0:
		return fmt.Errorf("--each %v: it may not be below 0", b.Each)
	case !(b.Rate > 0 && b.Rate <= maxRate):
		return fmt.Errorf("--rate %v: it must be above 0 and at most %d requests/s", b.Rate, maxRate)
	}
	return nil
}

// maxRate is the highest rate that one instance of a part of a core is asked to serve.
const maxRate = 200

// bench is a running measurement.
type bench struct {
	Bench
	*kubelet.Cluster
	ingress *Ingress
	// images are the names of the model's two images.
	images []string
	report *report.Report
}

// Run measures in the namespaces of node.Run, with what [kubelet.Prepare] has built. It returns what was
// measured before an error, too.
func Run(ctx context.Context, b Bench) (r *report.Report, err error) {
	r = report.New("bench knative", time.Now())
	m := &bench{Bench: b, report: r}
	if m.Cluster, err = kubelet.Start(ctx, b.Log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.Show(context.WithoutCancel(ctx), "services.serving.knative.dev,revisions.serving.knative.dev")
			m.KeepLogs()
		}
		err = errors.Join(err, m.Stop())
	}()
	if err := m.install(ctx); err != nil {
		return nil, err
	}
	defer m.ingress.Close()
	ours, theirs, err := m.systems(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.coldStarts(ctx, ours, theirs); err != nil {
		return r, err
	}
	return r, m.rollouts(ctx, ours, theirs)
}

func (b *bench) say(format string, arguments ...any) {
	fmt.Fprintf(b.Bench.Log, format+"\n", arguments...)
}

// patience bounds each wait for the cluster.
const patience = 5 * time.Minute

// await polls until done returns nil.
func await(ctx context.Context, what string, done func() error) error {
	tick := time.Tick(50 * time.Millisecond)
	for end := time.Now().Add(patience); ; {
		err := done()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %v for %s: %w", patience, what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-tick:
		}
	}
}
