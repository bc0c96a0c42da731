package fidelity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/web"
)

// RigOptions say how to start providers.
type RigOptions struct {
	// Self is the faas-infer program. Prepared is the directory of prepared models, ""
	// for the program's default.
	Self, Prepared string
	// Core is the CPU core of the instances. The provider has those of this process.
	Core int
}

// Server is a provider in a separate process.
type Server struct {
	*process.Child
	url, state string
	log        *output
}

// output keeps what a process prints.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String implements fmt.Stringer.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(o.text.String())
}

// WholeCore is the maximum CPU share of an instance in millicores, one core.
const WholeCore = 1000

// Serve starts a provider in a state directory, with the functions stored there.
func (o RigOptions) Serve(ctx context.Context, state string, flags ...string) (*Server, error) {
	l, err := web.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	s := &Server{url: "http://" + address, state: state, log: &output{}}
	arguments := []string{"provider", "--listen", address, "--state", state, "--nats-listen", "off", "--log-level", "warn", "--measure", "--cores", fmt.Sprint(o.Core)}
	if o.Prepared != "" {
		arguments = append(arguments, "--prepared", o.Prepared)
	}
	c := exec.Command(o.Self, append(arguments, flags...)...)
	c.Stdout, c.Stderr = s.log, s.log
	if s.Child, err = process.Start(c, syscall.SIGTERM); err != nil {
		return nil, fmt.Errorf("start a provider: %w", err)
	}
	healthy := func() (bool, error) {
		_, err := s.get(ctx, "/healthz")
		return err == nil, nil
	}
	if err := s.await(ctx, "the provider", healthy); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Stop stops the provider and its instances.
func (s *Server) Stop() {
	_ = s.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.Exited():
	case <-time.After(time.Minute):
		_ = s.Process.Kill()
		<-s.Exited()
	}
}

// await waits until ready returns true or an error, for at most patience.
func (s *Server) await(ctx context.Context, what string, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %s", what, ctx.Err(), s.log)
		case <-s.Exited():
			return fmt.Errorf("the provider exited (%v): %s", s.ProcessState, s.log)
		case <-time.After(pause):
		}
	}
}

func (s *Server) get(ctx context.Context, path string) ([]byte, error) {
	return s.do(ctx, http.MethodGet, path, nil)
}

func (s *Server) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= http.StatusBadRequest {
		return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, response.Status, bytes.TrimSpace(text)), err)
	}
	return text, nil
}

// Deploy deploys a function with exactly one instance of at most one core, and waits for
// it.
func (s *Server) Deploy(ctx context.Context, f *Subject) error {
	image := f.Name + ":latest"
	if _, err := bundle.Write(filepath.Join(s.state, "bundles"), image, bundle.Manifest{}, f.model); err != nil {
		return err
	}
	body, err := json.Marshal(types.FunctionDeployment{Service: f.Name, Image: image,
		Annotations: &map[string]string{"com.openfaas.slo.latency": f.SLO.String(), "com.openfaas.infer.max-batch": fmt.Sprint(f.MaxBatch)},
		Limits:      &types.FunctionResources{CPU: fmt.Sprintf("%dm", WholeCore)},
		Labels:      &map[string]string{"com.openfaas.scale.min": "1", "com.openfaas.scale.max": "1"},
	})
	if err != nil {
		return err
	}
	if _, err := s.do(ctx, http.MethodPost, "/system/functions", body); err != nil {
		return err
	}
	return s.Ready(ctx, f)
}

// unmeetable is a part of the provider's log message for an objective that it cannot meet.
const unmeetable = "the objective cannot be met"

// Ready waits until a function has a ready instance.
func (s *Server) Ready(ctx context.Context, f *Subject) error {
	return s.await(ctx, f.Name, func() (bool, error) {
		text, err := s.get(ctx, "/system/function/"+f.Name)
		if err != nil {
			return false, err
		}
		var status types.FunctionStatus
		if err := json.Unmarshal(text, &status); err != nil {
			return false, err
		}
		if log := s.log.String(); strings.Contains(log, unmeetable) {
			return false, fmt.Errorf("the machine is too slow or too busy for an SLO of %v: %s", f.SLO, log)
		}
		return status.AvailableReplicas > 0, nil
	})
}

// Instances lists the running instances of a function.
func (s *Server) Instances(function string) ([]rig.InstanceRecord, error) {
	all, err := rig.Records(s.state)
	return slices.DeleteFunc(all, func(r rig.InstanceRecord) bool { return r.Spec.Function != function+Namespace }), err
}
