package text

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/lab/peers"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// groups are what the provider is compared with, and the ratio to reach.
var groups = []struct {
	name string
	aim  float64
}{{"infinity", 2}, {"kserve", 2}, {"best_fixed", 1.5}}

// way is how a server takes one text and answers with its vector.
type way struct {
	path   string
	encode func(text string) any
	decode func(body []byte) ([]float32, error)
}

// openAI is OpenAI's way, v1 that of KServe's first protocol.
var (
	openAI = way{"/v1/embeddings", func(text string) any {
		return map[string]any{"model": rig.FunctionName, "input": text}
	}, func(body []byte) ([]float32, error) {
		var answer struct {
			Data []struct {
				Embedding []float32 `json:"embedding"`
			} `json:"data"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, err
		}
		if len(answer.Data) != 1 {
			return nil, fmt.Errorf("%d vectors, not one: %.200s", len(answer.Data), body)
		}
		return answer.Data[0].Embedding, nil
	}}
	v1 = way{"/v1/models/" + rig.FunctionName + ":predict", func(text string) any {
		return map[string]any{"instances": []string{text}}
	}, func(body []byte) ([]float32, error) {
		var answer struct {
			Predictions [][]float32 `json:"predictions"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, err
		}
		if len(answer.Predictions) != 1 {
			return nil, fmt.Errorf("%d vectors, not one: %.200s", len(answer.Predictions), body)
		}
		return answer.Predictions[0], nil
	}}
)

// setting is one way to start a peer. Its fields are the options that its service reads.
type setting struct {
	// Engine is Infinity's.
	Engine string `json:"-"`
	// MaxBatch is the largest batch in texts, Window how long a batch waits.
	MaxBatch int     `json:"max_batch"`
	Window   float64 `json:"window_ms"`
	// Workers is the number of processes, Threads that of ONNX Runtime in each.
	Workers int `json:"workers"`
	Threads int `json:"threads"`
	// Threaded: KServe runs the model in a thread beside the server's.
	Threaded bool `json:"threaded"`
}

// peer is a server that the provider is compared with.
type peer struct {
	// name is its name in results, group that of its ratio, python its environment.
	name, group, python string
	way                 way
	settings            []setting
	// describe returns a setting in the peer's terms.
	describe func(x setting) string
	// argv are the interpreter's arguments. ready is the path of the readiness check, files are the
	// services.
	argv  func(x setting, p place) []string
	env   []string
	ready string
	files []string
}

// place is what a server serves, and where: the model's folder, its pooling, and a port.
type place struct {
	Model   string `json:"model"`
	Pooling string `json:"pooling"`
	Port    int    `json:"port"`
}

// all are the peers, in the order of measurement. All have both cores.
var all = []peer{
	{
		name: "infinity", group: "infinity", python: engines, way: openAI, ready: "/health",
		settings: []setting{{Engine: "optimum", MaxBatch: 32}, {Engine: "torch", MaxBatch: 32}, {Engine: "optimum", MaxBatch: 8}, {Engine: "torch", MaxBatch: 8}},
		describe: func(x setting) string { return fmt.Sprintf("--engine %s --batch-size %d", x.Engine, x.MaxBatch) },
		argv: func(x setting, p place) []string {
			return []string{"-c", "from infinity_emb.cli import cli; cli()", "v2", "--model-id", p.Model, "--served-model-name", rig.FunctionName,
				"--engine", x.Engine, "--batch-size", strconv.Itoa(x.MaxBatch), "--device", "cpu", "--host", "127.0.0.1", "--port", strconv.Itoa(p.Port),
				"--url-prefix", "/v1", "--pooling-method", p.Pooling, "--no-model-warmup", "--log-level", "error"}
		},
		env: []string{"OMP_NUM_THREADS=2", "DO_NOT_TRACK=1", "INFINITY_ANONYMOUS_USAGE_STATS=0"},
	},
	{
		name: "kserve", group: "kserve", python: "kserve", way: v1, ready: "/v2/health/ready", files: []string{"peer_texts.py", "peer_kserve.py"},
		settings: []setting{{Workers: 1, Threads: 1, Threaded: true}, {Workers: 1, Threads: 2}, {Workers: 2, Threads: 1}},
		describe: func(x setting) string {
			return fmt.Sprintf("workers %d, intra-op threads %d, predict in a thread %v; it does not batch", x.Workers, x.Threads, x.Threaded)
		},
		argv: func(setting, place) []string { return []string{"peer_kserve.py"} },
	},
	fixed("fixed.none", setting{MaxBatch: 1}),
	fixed("fixed.8x2ms", setting{MaxBatch: 8, Window: 2}),
	fixed("fixed.32x5ms", setting{MaxBatch: 32, Window: 5}),
	fixed("fixed.32x10ms", setting{MaxBatch: 32, Window: 10}),
}

// fixed is ONNX Runtime behind FastAPI with one largest batch and window. It is tuned over one process
// with two threads, and two processes with one thread each.
func fixed(name string, x setting) peer {
	one, two := x, x
	one.Workers, one.Threads = 1, 2
	two.Workers, two.Threads = 2, 1
	return peer{
		name: name, group: "best_fixed", python: engines, way: openAI, ready: "/health", files: []string{"peer_texts.py", "peer_fixed.py"},
		settings: []setting{two, one},
		describe: func(x setting) string {
			return fmt.Sprintf("max batch %d, window %g ms, workers %d, intra-op threads %d", x.MaxBatch, x.Window, x.Workers, x.Threads)
		},
		argv: func(x setting, p place) []string {
			return []string{"-m", "uvicorn", "peer_fixed:app", "--host", "127.0.0.1", "--port", strconv.Itoa(p.Port),
				"--workers", strconv.Itoa(x.Workers), "--log-level", "error", "--no-access-log"}
		},
	}
}

// Peers returns the names of the peers, in the order of measurement.
func Peers() (names []string) {
	for _, p := range all {
		names = append(names, p.name)
	}
	return names
}

// choose returns the peers with these names: all for no name, none for [peers.None].
func choose(names []string) (some []peer, err error) {
	if len(names) == 0 {
		return all, nil
	}
	if slices.Equal(names, []string{peers.None}) {
		return nil, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(all, func(p peer) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--peers: there is no peer %q; the peers are %s", name, strings.Join(Peers(), ", "))
		}
		some = append(some, all[i])
	}
	return some, nil
}

// found is the best setting of a peer so far, and its rate in requests/s.
type found struct {
	setting string
	rate    float64
}

// peer finds the best setting of a peer. The error is that of settings that failed.
func (u *run) peer(ctx context.Context, s *served, p peer) (best found, failed error) {
	if err := u.missing[p.name]; err != nil {
		return best, err
	}
	for _, x := range p.settings {
		described := p.describe(x)
		fmt.Fprintf(u.o.Log, "%s: %s: %s\n", s.name, p.name, described)
		rate, err := u.setting(ctx, s, p, x, best.rate)
		if ctx.Err() != nil {
			return best, ctx.Err()
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", described, err)
			fmt.Fprintln(u.o.Log, err)
			failed = errors.Join(failed, err)
		}
		if rate > best.rate {
			best = found{described, rate}
		}
	}
	return best, failed
}

// starting is how long a server may take until its answers are right.
const starting = 30 * time.Second

// setting measures a peer with one setting, which has a rate to beat.
func (u *run) setting(ctx context.Context, s *served, p peer, x setting, beat float64) (float64, error) {
	dir, err := os.MkdirTemp(u.dir, "")
	if err != nil {
		return 0, err
	}
	port, err := engine.FreePort()
	if err != nil {
		return 0, err
	}
	for _, file := range p.files {
		if err := copyService(file, dir); err != nil {
			return 0, err
		}
	}
	// Infinity writes optimised models into the folder.
	at := place{Model: filepath.Join(dir, "model"), Pooling: s.pooling, Port: port}
	if err := linkFolder(at.Model, s.dir); err != nil {
		return 0, err
	}
	options := filepath.Join(dir, "peer.json")
	if err := writeJSON(options, struct {
		setting
		place
		Max int `json:"max_length"`
	}{x, at, longest}); err != nil {
		return 0, err
	}
	program := u.python[p.python]
	server, err := peers.Server{
		Dir:     dir,
		Python:  program,
		Options: options,
		Argv:    append([]string{program}, p.argv(x, at)...),
		Env:     slices.Concat(offline, p.env),
		URL:     "http://127.0.0.1:" + strconv.Itoa(port),
		Ready:   p.ready,
	}.Start(ctx, peers.Anywhere)
	if err != nil {
		return 0, err
	}
	defer server.Stop()
	server.AwaitIdle(ctx)
	t, err := s.target(p.way, server.URL, u.corpus.texts)
	if err == nil {
		err = s.right(ctx, t, starting)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, server.Said())
	}
	rate, err := s.trials.Rate(ctx, t, beat)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, server.Said())
	}
	return rate, err
}

// linkFolder makes a folder with links to the files of another.
func linkFolder(to, from string) error {
	return filepath.WalkDir(from, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		return os.Symlink(file, filepath.Join(to, name))
	})
}

// checkEvery: during a load, one answer of this number is compared with the right one.
const checkEvery = 7

// tolerance is how far a number of a vector may be from the right one during a load.
const tolerance = 1e-4

// target makes requests of one text each, in turn.
func (s *served) target(w way, url string, texts []string) (load.Target, error) {
	t := load.Target{
		Name:     s.name,
		URL:      url + w.path,
		SLO:      s.trials.SLO,
		Arrivals: load.Poisson,
		Header:   http.Header{"Content-Type": {"application/json"}},
	}
	var bodies [][]byte
	for _, text := range texts {
		body, err := json.Marshal(w.encode(text))
		if err != nil {
			return t, err
		}
		bodies = append(bodies, body)
	}
	t.Body = load.Cycle(bodies...)
	t.Verify = func(i int, body []byte) error {
		if i%checkEvery != 0 {
			return nil
		}
		got, err := w.decode(body)
		if err != nil {
			return err
		}
		if off := difference(got, s.vectors[i%len(texts)]); !(off <= tolerance) {
			return fmt.Errorf("the vector of text %d is off by %g", i%len(texts), off)
		}
		return nil
	}
	return t, nil
}

// right waits until a server's answers are right.
func (s *served) right(ctx context.Context, t load.Target, atMost time.Duration) error {
	for end := time.Now().Add(atMost); ; {
		_, err := rig.One(ctx, t)
		if err == nil || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
		if err := rig.Pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// difference is the largest difference between two vectors, infinite if their widths differ.
func difference(a, b []float32) (most float64) {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if most = max(most, d); math.IsNaN(d) {
			return d
		}
	}
	return most
}

// cosine is that of two vectors of one width.
func cosine(a, b []float32) float64 {
	var dot, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		dot, aa, bb = dot+x*y, aa+x*x, bb+y*y
	}
	return dot / math.Sqrt(aa*bb)
}
