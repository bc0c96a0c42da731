package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// Deployed is a provider in a separate process.
type Deployed struct {
	*Child
	// URL is the provider's URL, State its state directory.
	URL, State string
}

// Provider starts a provider without functions.
func (o Options) Provider(ctx context.Context, dir string, arguments ...string) (*Deployed, error) {
	address, err := engine.FreeAddress()
	if err != nil {
		return nil, err
	}
	return o.ProviderAt(ctx, address, dir, append([]string{"--nats-listen", "off"}, arguments...)...)
}

// ProviderAt starts a provider at an address. It restores the functions that an earlier
// provider stored in dir.
func (o Options) ProviderAt(ctx context.Context, address, dir string, arguments ...string) (*Deployed, error) {
	d := &Deployed{URL: "http://" + address, State: filepath.Join(dir, "state")}
	arguments = append([]string{"provider", "--listen", address, "--state", d.State, "--log-level", "warn", "--cold-wait", "5m"}, arguments...)
	var err error
	if d.Child, err = o.Start(arguments...); err != nil {
		return nil, err
	}
	if err := d.Answers(ctx, d.URL+"/healthz"); err != nil {
		d.Stop()
		return nil, err
	}
	return d, nil
}

// Bundle writes a subject as an image into the provider's bundles.
func (d *Deployed) Bundle(s *Subject, image string) (err error) {
	root := filepath.Join(d.State, "bundles")
	if s.Model == nil {
		_, err = bundle.WriteDir(root, image, s.Dir, bundle.Manifest{})
	} else {
		_, err = bundle.Write(root, image, bundle.Manifest{}, s.Model)
	}
	return err
}

// Deploy deploys a function with an SLO.
func (d *Deployed) Deploy(ctx context.Context, name, image string, slo time.Duration) error {
	return d.DeployFunction(ctx, Function(name, image, map[string]string{"com.openfaas.slo.latency": slo.String()}))
}

// Function returns the deployment of an image as a function.
func Function(name, image string, annotations map[string]string) types.FunctionDeployment {
	return types.FunctionDeployment{Service: name, Image: image, Annotations: &annotations}
}

// CPU returns limits or requests with an amount of CPU, such as 500m.
func CPU(amount string) *types.FunctionResources { return &types.FunctionResources{CPU: amount} }

// Update replaces a function's deployment.
func (d *Deployed) Update(ctx context.Context, f types.FunctionDeployment) error {
	return d.call(ctx, http.MethodPut, "/system/functions", f)
}

// DeployFunction deploys a function as described.
func (d *Deployed) DeployFunction(ctx context.Context, f types.FunctionDeployment) error {
	return d.call(ctx, http.MethodPost, "/system/functions", f)
}

// Remove removes a function if it exists.
func (d *Deployed) Remove(ctx context.Context, name string) error {
	return d.call(ctx, http.MethodDelete, "/system/functions", types.DeleteFunctionRequest{FunctionName: name}, http.StatusNotFound)
}

// Scale sets a function's number of instances.
func (d *Deployed) Scale(ctx context.Context, name string, replicas uint64) error {
	return d.call(ctx, http.MethodPost, "/system/scale-function/"+name, types.ScaleServiceRequest{ServiceName: name, Replicas: replicas})
}

// call sends a request with a JSON body. A status is an error unless it is a success or in
// fine.
func (d *Deployed) call(ctx context.Context, method, path string, body any, fine ...int) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, d.URL+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, _ := io.ReadAll(response.Body)
	if response.StatusCode/100 != 2 && !slices.Contains(fine, response.StatusCode) {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, said)
	}
	return nil
}

// Status asks the provider for a function's status.
func (d *Deployed) Status(ctx context.Context, name string) (s types.FunctionStatus, err error) {
	status, text, err := Get(ctx, http.DefaultClient, d.URL+"/system/function/"+name)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the status of %s: %d: %s", name, status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// Available waits until a function has exactly n instances and all are ready, for at most a
// minute.
func (d *Deployed) Available(ctx context.Context, name string, n uint64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if s, err := d.Status(ctx, name); err == nil && s.AvailableReplicas == n && s.Replicas == n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not reach %d ready instances: %w", name, n, ctx.Err())
		case <-d.Exited():
			return fmt.Errorf("the provider exited: %v: %s", d.ProcessState, d.output.String())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Pause waits for d, or until ctx ends, whose error it then returns.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// InstanceRecord is a part of the provider's record of an instance.
type InstanceRecord struct {
	Spec   cluster.InstanceSpec `json:"spec"`
	Socket string               `json:"socket"`
	// Cgroup: it has a CPU quota.
	Cgroup  bool `json:"cgroup"`
	Process struct {
		PID int `json:"pid"`
	} `json:"process"`
	StartedAt time.Time `json:"startedAt"`
	ReadyAt   time.Time `json:"readyAt"`
}

// Records lists the provider's instances.
func (d *Deployed) Records() ([]InstanceRecord, error) { return Records(d.State) }

// Records lists the instances of the provider with this state directory.
func Records(state string) ([]InstanceRecord, error) {
	files, err := filepath.Glob(filepath.Join(state, "local", "instances", "*", "instance.json"))
	if err != nil {
		return nil, err
	}
	var out []InstanceRecord
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // The instance has ended meanwhile.
		}
		if err != nil {
			return nil, err
		}
		var r InstanceRecord
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// DeployProgram deploys an ordinary function that runs process for each request.
func (d *Deployed) DeployProgram(ctx context.Context, name, process string) error {
	return d.DeployFunction(ctx, types.FunctionDeployment{Service: name, Image: "functions/alpine:latest", EnvProcess: process})
}

// Metric reads the value of one of the provider's series, 0 if there is no such series.
func (d *Deployed) Metric(ctx context.Context, series string) (value float64, err error) {
	_, text, err := Get(ctx, http.DefaultClient, d.URL+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			_, err := fmt.Sscan(rest, &value)
			return value, err
		}
	}
	return 0, nil
}

// FunctionMetric is Metric for the series of a function in the default namespace. name is the metric's
// without the prefix faas_infer_.
func (d *Deployed) FunctionMetric(ctx context.Context, name, function string) (float64, error) {
	return d.Metric(ctx, fmt.Sprintf(`faas_infer_%s{function="%s.openfaas-fn"}`, name, function))
}

// AwaitProfile waits until the provider has the full profiles of the models of [FunctionName], at
// most for a while: a busy machine leaves the profiler no CPU time, which it then logs.
func (d *Deployed) AwaitProfile(ctx context.Context, log io.Writer, atMost time.Duration) error {
	for began := time.Now(); time.Since(began) < atMost; {
		provisional, err := d.FunctionMetric(ctx, "provisional_profile", FunctionName)
		if err != nil || provisional == 0 {
			return err
		}
		if err := Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	fmt.Fprintf(log, "the model's times are provisional after %v: is the machine busy?\n", atMost)
	return nil
}
