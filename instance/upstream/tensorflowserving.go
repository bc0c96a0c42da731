package upstream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// tensorFlowServing is TensorFlow Serving.
type tensorFlowServing struct{}

// batchingFile holds the settings of its batching, modelsDir the model's versions.
const (
	batchingFile = "batching.pbtxt"
	modelsDir    = "model"
)

func (tensorFlowServing) name() string { return "tensorflow_model_server" }

func (tensorFlowServing) pip() bool { return false }

func (tensorFlowServing) find(path []string, _ string) (program, error) {
	if file, ok := lookUp("tensorflow_model_server", path); ok {
		return program{argv: []string{file}}, nil
	}
	return program{}, errors.New("tensorflow_model_server is not on PATH; build the image from tensorflow/serving, install Debian's tensorflow-model-server from TensorFlow's repository, or name the program in bundle.yaml as `server: /path/to/tensorflow_model_server`")
}

// layOut links the model's version and writes the settings of batching. A model without
// versions becomes version 1.
func (tensorFlowServing) layOut(dir string, s serving) error {
	models := filepath.Join(dir, modelsDir)
	if err := os.Mkdir(models, 0o755); err != nil {
		return err
	}
	version, from := bundle.Version(os.DirFS(s.Model), "."), s.Model
	if version == "" {
		version = "1"
	} else {
		from = filepath.Join(s.Model, version)
	}
	if err := os.Symlink(from, filepath.Join(models, version)); err != nil {
		return err
	}
	// A batch comes as one request and cannot grow, so it must not wait.
	text := fmt.Sprintf("max_batch_size { value: %d }\nbatch_timeout_micros { value: 0 }\nnum_batch_threads { value: 1 }\n", s.Batch)
	return os.WriteFile(filepath.Join(dir, batchingFile), []byte(text), 0o644)
}

func (tensorFlowServing) flags(dir string, s serving, at ports) ([]flag, []string) {
	return []flag{
		{"--rest_api_port", strconv.Itoa(at.http)}, {"--port", "0"},
		{"--model_name", s.Name}, {"--model_base_path", filepath.Join(dir, modelsDir)},
		{"--enable_batching", "true"}, {"--batching_parameters_file", filepath.Join(dir, batchingFile)},
		{"--tensorflow_intra_op_parallelism", strconv.Itoa(s.Threads)}, {"--tensorflow_inter_op_parallelism", "1"},
		{"--file_system_poll_wait_seconds", "0"},
	}, nil
}

func (tensorFlowServing) clear(ports) {}

func (tensorFlowServing) connect(base, model string) Server {
	return NewPredict(base, model)
}
