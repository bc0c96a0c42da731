package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
)

// way is one way to call the instance.
type way struct {
	name, url string
	// pid is the process that answers at url, 0 if it is not known.
	pid int
	// arguments are those of that process, nil if it is not this program.
	arguments []string
	// change, if set, makes a request one of this way. about is a part of the results' notes.
	change func(*load.Target)
	about  string
	// p50, p99, rps and cpu hold one figure per round. cpu is the processor time of that process for
	// each request, in µs.
	p50, p99, rps, cpu []float64
}

// rounds is how often the ways are measured in turn. The machine's other work then affects
// all of them.
const rounds = 5

// RunDataplane measures what the provider adds to a call of an instance, against what
// faas-provider's proxy adds. It uses an identity model with one request per execution, so
// the way is all that takes time. Instance, provider and proxy are separate processes.
// Each way is measured for each per round.
func RunDataplane(ctx context.Context, o rig.Options, each time.Duration) (*report.Report, error) {
	// In use, provider and instances are one program and share its pages. As two
	// programs they take 10 µs more per request.
	o.Program = process.Self()
	s, err := rig.NewSubject("identity")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	ways, stop, err := start(ctx, o, s)
	if err != nil {
		return nil, err
	}
	defer stop()
	r := report.New("bench dataplane", time.Now())
	for _, size := range []struct {
		name     string
		elements int
	}{{"", 64}, {"mib.", (1 << 20) / 4}} {
		target, err := identityTarget(size.elements)
		if err != nil {
			return nil, err
		}
		for _, clients := range []int{1, 16} {
			fmt.Fprintf(o.Log, "%d clients, bodies of %d B\n", clients, size.elements*4)
			if err := measureWays(ctx, ways, target, clients, each); err != nil {
				return nil, err
			}
			addWays(r, size.name, clients, ways)
		}
	}
	return r, nil
}

// start starts the instance and the two fronts, and returns the ways to the instance.
func start(ctx context.Context, o rig.Options, s *rig.Subject) (ways []*way, stop func(), err error) {
	var children []*rig.Child
	stop = func() {
		for _, c := range slices.Backward(children) {
			c.Stop()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	prepared, profile, err := o.Models.Measure(ctx, s.File, 1, 0)
	if err != nil {
		return nil, stop, err
	}
	exec, _ := profile.ExecTime(1, profiler.Share{CPU: 1000})
	socket := filepath.Join(s.Dir, "instance.sock")
	var addresses [3]string
	for i := range addresses {
		if addresses[i], err = engine.FreeAddress(); err != nil {
			return nil, stop, err
		}
	}
	commands := [][]string{
		{"instance", "--prepared", prepared, "--name", rig.FunctionName, "--listen", "unix://" + socket, "--listen", "tcp://" + addresses[0]},
		{"bench", "front", "--kind", "provider", "--listen", addresses[1], "--socket", socket, "--exec", exec.String()},
		{"bench", "front", "--kind", "faas-proxy", "--listen", addresses[2], "--address", addresses[0]},
	}
	for i, arguments := range commands {
		c, err := o.Start(arguments...)
		if err != nil {
			return nil, stop, err
		}
		children = append(children, c)
		url := "http://" + addresses[i]
		if i > 0 {
			url += "/function/" + rig.FunctionName
		}
		if err := c.Answers(ctx, url+"/v2/health/ready"); err != nil {
			return nil, stop, err
		}
		ways = append(ways, &way{name: []string{"direct", "provider", "faas_proxy"}[i], url: url + "/", pid: c.Process.Pid, arguments: arguments})
	}
	return ways, stop, nil
}

// identityTarget sends a tensor of FP32 elements and expects it back.
func identityTarget(elements int) (load.Target, error) {
	data := make([]byte, elements*4)
	body, length, err := load.EncodeBinary([]tensor.Tensor{{Name: "input", Type: tensor.FP32, Shape: []int64{1, int64(elements)}, Data: data}})
	if err != nil {
		return load.Target{}, err
	}
	return load.Target{
		Header: http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}},
		Body:   func(int) []byte { return body },
		Verify: func(_ int, answer []byte) error {
			if !bytes.HasSuffix(answer, data) {
				return fmt.Errorf("the answer of %d bytes does not hold the input", len(answer))
			}
			return nil
		},
	}, nil
}

// measureWays measures the ways in turn, in several rounds.
func measureWays(ctx context.Context, ways []*way, target load.Target, clients int, each time.Duration) error {
	for _, w := range ways {
		w.p50, w.p99, w.rps, w.cpu = nil, nil, nil, nil
	}
	for round := range rounds + 1 {
		for _, w := range ways {
			t := target
			t.Name, t.URL = w.name, w.url
			if w.change != nil {
				w.change(&t)
			}
			before := w.used()
			result, err := load.RunClosed(ctx, t, clients, each)
			if err != nil {
				return err
			}
			if err := rig.AllGood(result); err != nil {
				return err
			}
			if round == 0 {
				continue // This round makes connections and warms caches.
			}
			w.p50 = append(w.p50, rig.Microseconds(result.Latency.P50))
			w.p99 = append(w.p99, rig.Microseconds(result.Latency.P99))
			w.rps = append(w.rps, result.Achieved)
			w.cpu = append(w.cpu, rig.Microseconds(w.used()-before)/float64(max(1, result.Good)))
		}
	}
	return nil
}

// used returns the processor time that the way's process has used, 0 if that is not known.
func (w *way) used() time.Duration {
	if w.pid == 0 {
		return 0
	}
	d, err := rig.ProcessorTime(w.pid)
	if err != nil {
		return 0 // It has exited, so its requests fail, too.
	}
	return d
}

// addWays adds the medians over the rounds. Differences and ratios are taken within a
// round.
func addWays(r *report.Report, prefix string, clients int, ways []*way) {
	note := fmt.Sprintf("%d clients, median of %d rounds", clients, rounds)
	for _, w := range ways {
		if clients == 1 {
			r.Add(prefix+w.name+".p50_us", rig.Median(w.p50), "µs", note)
			r.Add(prefix+w.name+".p99_us", rig.Median(w.p99), "µs", note)
		}
		r.Add(fmt.Sprintf("%s%s.rps_%d", prefix, w.name, clients), rig.Median(w.rps), "requests/s", note)
	}
	direct, ours, proxy := ways[0], ways[1], ways[2]
	if clients == 1 {
		r.Add(prefix+"added.p50_us", rig.Median(pairs(ours.p50, direct.p50, minus)), "µs", "provider over direct")
		r.Add(prefix+"added.p99_us", rig.Median(pairs(ours.p99, direct.p99, minus)), "µs", "provider over direct")
		r.Add(prefix+"added_faas_proxy.p50_us", rig.Median(pairs(proxy.p50, direct.p50, minus)), "µs", "faas-provider's proxy over direct")
		r.Add(prefix+"added_faas_proxy.p99_us", rig.Median(pairs(proxy.p99, direct.p99, minus)), "µs", "faas-provider's proxy over direct")
		return
	}
	r.Add(prefix+"rps_ratio.faas_proxy", rig.Median(pairs(ours.rps, proxy.rps, over)), "ratio", "provider over faas-provider's proxy, "+note)
	r.Add(prefix+"rps_ratio.direct", rig.Median(pairs(ours.rps, direct.rps, over)), "ratio", "provider over direct, "+note)
}

func minus(a, b float64) float64 { return a - b }
func over(a, b float64) float64  { return a / b }

func pairs(a, b []float64, f func(a, b float64) float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = f(a[i], b[i])
	}
	return out
}
