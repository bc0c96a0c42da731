package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// mlserver is Seldon's MLServer.
type mlserver struct{}

// The files of MLServer's settings, for the server and for the model.
const (
	serverSettings = "settings.json"
	modelSettings  = "model-settings.json"
)

func (mlserver) name() string { return "mlserver" }

func (mlserver) pip() bool { return true }

// find prefers the package to the environment's script. Scripts contain the path where
// their environment was made, but the environment was moved afterwards.
func (mlserver) find(path []string, packages string) (program, error) {
	if info, err := os.Stat(filepath.Join(packages, "mlserver")); packages != "" && err == nil && info.IsDir() {
		python := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(packages))), "bin", "python")
		return program{argv: []string{python, "-c", "from mlserver.cli import main; main()"}}, nil
	}
	if file, ok := lookUp("mlserver", path); ok {
		return program{argv: []string{file}}, nil
	}
	return program{}, errors.New("mlserver is not on PATH; install it with pip, or name the program in bundle.yaml as `server: /path/to/mlserver start`")
}

// layOut links the model's files and writes the settings, with the instance's values.
func (mlserver) layOut(dir string, s serving) error {
	if err := link(dir, s.Model, serverSettings, modelSettings); err != nil {
		return err
	}
	// With a batch time of 0, MLServer runs each request as one batch. It answers in its
	// own process, one request at a time. It serves no metrics: the instance does.
	err := settings(dir, s.Model, modelSettings, map[string]any{
		"name": s.Name, "max_batch_size": s.Batch, "max_batch_time": 0,
	})
	if err != nil {
		return err
	}
	return settings(dir, s.Model, serverSettings, map[string]any{
		"host": "127.0.0.1", "http_port": nil, "grpc_port": nil, "metrics_endpoint": nil, "parallel_workers": 0,
		"model_repository_root": nil, "load_models_at_startup": true,
	})
}

// settings copies a file of settings and sets the given ones. It removes those that are
// nil: the environment sets them. Only metrics_endpoint stays as null, which means none.
func settings(dir, from, name string, ours map[string]any) error {
	all := map[string]json.RawMessage{}
	text, err := os.ReadFile(filepath.Join(from, name))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, err)
	}
	for key, value := range ours {
		if value == nil && key != "metrics_endpoint" {
			delete(all, key)
			continue
		}
		if all[key], err = json.Marshal(value); err != nil {
			return err
		}
	}
	if text, err = json.MarshalIndent(all, "", "  "); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), text, 0o644)
}

func (mlserver) flags(dir string, _ serving, at ports) ([]flag, []string) {
	return []flag{{name: "start"}, {name: dir}}, []string{
		fmt.Sprintf("MLSERVER_HTTP_PORT=%d", at.http), fmt.Sprintf("MLSERVER_GRPC_PORT=%d", at.other),
	}
}

func (mlserver) clear(ports) {}

func (mlserver) connect(base, model string) Server {
	return NewOpenInference(base, model)
}
