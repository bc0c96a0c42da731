package peers

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// services are the peers' services and their requirements beyond the engine's packages.
//
//go:embed services
var services embed.FS

// site is a directory with a server's files, and the options for them.
type site struct {
	dir, model, output string
	python             environment.Environment
	inputs             []tensor.Tensor
	settings           []Setting
	// gpu is the UUID of the GPU on which Triton runs the model, "" for none.
	gpu string
	// http and grpc are ports of the loopback interface.
	http, grpc int
}

// server is what a peer says of its command.
type server struct {
	argv, env []string
	// ready is the path of the readiness check.
	ready string
	// cleanUp, if not nil, removes what a killed server leaves behind.
	cleanUp func()
}

// running is a started peer.
type running struct {
	*Running
	// grpc is its URL for gRPC.
	grpc string
}

// dtypes are NumPy's names of the models' input types.
var dtypes = map[tensor.Type]string{tensor.FP32: "float32", tensor.Int64: "int64"}

// describe writes the file that the services read, and returns its name.
func (s *site) describe() (string, error) {
	type input struct {
		Name  string  `json:"name"`
		Type  string  `json:"dtype"`
		Shape []int64 `json:"shape"`
	}
	type setting struct {
		Name     string  `json:"name"`
		MaxBatch int     `json:"max_batch"`
		Delay    float64 `json:"delay_ms"`
		Workers  int     `json:"workers"`
	}
	var inputs []input
	for _, in := range s.inputs {
		if dtypes[in.Type] == "" {
			return "", fmt.Errorf("input %q has type %s, which the services do not support", in.Name, in.Type)
		}
		inputs = append(inputs, input{in.Name, dtypes[in.Type], in.Shape})
	}
	var settings []setting
	for _, x := range s.settings {
		settings = append(settings, setting{x.Name, x.MaxBatch, rig.Milliseconds(x.Delay), x.Workers})
	}
	file := filepath.Join(s.dir, "peer.json")
	return file, writeJSON(file, map[string]any{"model": s.model, "dir": s.dir, "port": s.http, "grpc_port": s.grpc, "inputs": inputs, "settings": settings})
}

func writeJSON(file string, what any) error {
	text, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// copyService writes one of the embedded files to a path.
func copyService(name, to string) error {
	text, err := services.ReadFile("services/" + name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

func startMLServer(s *site) (server, error) {
	err := writeJSON(filepath.Join(s.dir, "settings.json"), map[string]any{
		"host": "127.0.0.1", "http_port": s.http, "grpc_port": s.grpc, "metrics_endpoint": nil, "debug": false,
		"parallel_workers": s.settings[0].Workers, "gzip_enabled": false,
	})
	for _, x := range s.settings {
		dir := filepath.Join(s.dir, x.Name)
		settings := map[string]any{"name": x.Name, "implementation": "peer_mlserver.Onnx"}
		if x.MaxBatch > 1 {
			settings["max_batch_size"], settings["max_batch_time"] = x.MaxBatch, x.Delay.Seconds()
		}
		err = errors.Join(err, os.MkdirAll(dir, 0o755), writeJSON(filepath.Join(dir, "model-settings.json"), settings))
	}
	return server{
		argv:  []string{s.python.Python, "-c", "from mlserver.cli import main; main()", "start", s.dir},
		ready: "/v2/health/ready",
	}, errors.Join(err, copyService("peer_mlserver.py", filepath.Join(s.dir, "peer_mlserver.py")))
}

func startBentoML(s *site) (server, error) {
	return server{
		argv: []string{s.python.Python, "-m", "bentoml", "serve", "peer_bentoml:Peer", "--host", "127.0.0.1", "--port", strconv.Itoa(s.http), "--working-dir", s.dir},
		env:  []string{"BENTOML_DO_NOT_TRACK=True", "BENTOML_HOME=" + filepath.Join(s.dir, "home")}, ready: "/readyz",
	}, copyService("peer_bentoml.py", filepath.Join(s.dir, "peer_bentoml.py"))
}

func startRay(s *site) (server, error) {
	proxy := filepath.Join(s.dir, "proxy")
	return server{
		argv: []string{s.python.Python, "peer_ray.py"},
		// Ray's documents advise the first two for throughput. The next keeps workers at normal priority. The
		// others put HAProxy's files here, and one thread on the one core.
		env: []string{"RAY_SERVE_THROUGHPUT_OPTIMIZED=1", "RAY_SERVE_ENABLE_HA_PROXY=1", "RAY_worker_niceness=0",
			"RAY_USAGE_STATS_ENABLED=0", "RAY_SERVE_HAPROXY_NBTHREAD=1", "RAY_SERVE_HAPROXY_SERVER_STATE_BASE=" + proxy,
			"RAY_SERVE_HAPROXY_SERVER_STATE_FILE=" + filepath.Join(proxy, "server-state"),
			"RAY_SERVE_HAPROXY_SOCKET_PATH=" + filepath.Join(proxy, "s"),
			"RAY_SERVE_HAPROXY_CONFIG_FILE_LOC=" + filepath.Join(proxy, "haproxy.cfg")},
		ready: "/-/healthz",
	}, errors.Join(os.MkdirAll(proxy, 0o755), copyService("peer_ray.py", filepath.Join(s.dir, "peer_ray.py")))
}

func startKServe(s *site) (server, error) {
	return server{argv: []string{s.python.Python, "peer_kserve.py"}, ready: "/v2/health/ready"},
		copyService("peer_kserve.py", filepath.Join(s.dir, "peer_kserve.py"))
}

func startLitServe(s *site) (server, error) {
	return server{argv: []string{s.python.Python, "peer_litserve.py"}, ready: "/health"},
		copyService("peer_litserve.py", filepath.Join(s.dir, "peer_litserve.py"))
}

func startTriton(s *site) (server, error) {
	packages, version, err := s.python.Packages()
	if err != nil {
		return server{}, err
	}
	inside := filepath.Join(packages, "pytriton", "tritonserver")
	backend := filepath.Join(s.dir, "backends", "python")
	err = os.MkdirAll(backend, 0o755)
	files, globErr := filepath.Glob(filepath.Join(inside, "backends", "python", "*"))
	err = errors.Join(err, globErr)
	for _, file := range append(files, filepath.Join(inside, "python_backend_stubs", version, "triton_python_backend_stub")) {
		err = errors.Join(err, os.Symlink(file, filepath.Join(backend, filepath.Base(file))))
	}
	for _, x := range s.settings {
		model := filepath.Join(s.dir, "models", x.Name)
		err = errors.Join(err, copyService("peer_triton.py", filepath.Join(model, "1", "model.py")),
			os.WriteFile(filepath.Join(model, "config.pbtxt"), []byte(s.tritonConfig(x)), 0o644))
	}
	own, linkErr := filepath.EvalSymlinks(s.python.Python)
	region := fmt.Sprintf("faas-infer-bench-%d-", s.http)
	return server{
		argv: []string{filepath.Join(inside, "bin", "tritonserver"),
			"--model-repository=" + filepath.Join(s.dir, "models"), "--backend-directory=" + filepath.Join(s.dir, "backends"),
			"--http-address=127.0.0.1", "--http-port=" + strconv.Itoa(s.http), "--grpc-address=127.0.0.1", "--grpc-port=" + strconv.Itoa(s.grpc),
			"--allow-metrics=false", "--log-info=false", "--http-thread-count=" + strconv.Itoa(s.threads()), "--backend-config=python,shm-region-prefix-name=" + region},
		env: []string{"CUDA_VISIBLE_DEVICES=" + s.gpu, "LD_LIBRARY_PATH=" + filepath.Join(filepath.Dir(filepath.Dir(own)), "lib") + ":" + filepath.Join(packages, "nvidia_pytriton.libs")},
		cleanUp: func() {
			left, _ := filepath.Glob("/dev/shm/" + region + "*")
			for _, file := range left {
				_ = os.Remove(file)
			}
		},
		ready: "/v2/health/ready",
	}, errors.Join(err, linkErr)
}

// tritonConfig returns the configuration of a model with a setting.
func (s *site) tritonConfig(x Setting) string {
	var b strings.Builder
	fmt.Fprintf(&b, "backend: \"python\"\nmax_batch_size: %d\n", x.MaxBatch)
	for _, in := range s.inputs {
		dims := strings.Trim(strings.ReplaceAll(fmt.Sprint(in.Shape[1:]), " ", ", "), "[]")
		fmt.Fprintf(&b, "input { name: %q data_type: TYPE_%s dims: [ %s ] }\n", in.Name, in.Type, dims)
	}
	fmt.Fprintf(&b, "output { name: %q data_type: TYPE_FP32 dims: [ -1 ] }\n", s.output)
	if s.gpu == "" {
		fmt.Fprintf(&b, "instance_group { count: %d kind: KIND_CPU }\n", x.Workers)
	} else { // It sees one GPU.
		fmt.Fprintf(&b, "instance_group { count: %d kind: KIND_GPU gpus: [ 0 ] }\n", x.Workers)
	}
	preferred := ""
	if x.Preferred > 0 {
		preferred = fmt.Sprintf("preferred_batch_size: [ %d ] ", x.Preferred)
	}
	if x.MaxBatch > 1 {
		fmt.Fprintf(&b, "dynamic_batching { %smax_queue_delay_microseconds: %d }\n", preferred, x.Delay.Microseconds())
	}
	return b.String()
}

// threads is the number of Triton's threads that read requests over HTTP: two for its one core.
func (s *site) threads() int {
	if s.gpu == "" {
		return 2
	}
	return max(2, runtime.NumCPU()/2)
}

// launch starts a peer on a core, or with [Anywhere] on all, and waits until it is ready.
func (s *site) launch(ctx context.Context, p Peer, core int) (*running, error) {
	made, err := p.start(s)
	if err != nil {
		return nil, err
	}
	options, err := s.describe()
	if err != nil {
		return nil, err
	}
	r, err := Server{
		Dir: s.dir, Python: s.python.Python, Options: options, Argv: made.argv, Env: made.env,
		URL: "http://127.0.0.1:" + strconv.Itoa(s.http), Ready: made.ready, CleanUp: made.cleanUp,
	}.Start(ctx, core)
	if err != nil {
		return nil, err
	}
	return &running{r, "http://127.0.0.1:" + strconv.Itoa(s.grpc)}, nil
}
