package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// deployed is a provider of its own, a process, with a directory of its own.
type deployed struct {
	*child
	url, state string
}

// provider starts a provider without functions.
func (o Options) provider(ctx context.Context, dir string, arguments ...string) (*deployed, error) {
	address, err := freePort()
	if err != nil {
		return nil, err
	}
	return o.providerAt(ctx, address, dir, append([]string{"--nats-listen", "off"}, arguments...)...)
}

// providerAt starts a provider at an address, with the functions of the one that
// was in the directory before.
func (o Options) providerAt(ctx context.Context, address, dir string, arguments ...string) (*deployed, error) {
	d := &deployed{url: "http://" + address, state: filepath.Join(dir, "state")}
	arguments = append([]string{"provider", "--listen", address, "--state", d.state, "--log-level", "warn", "--cold-wait", "5m"}, arguments...)
	var err error
	if d.child, err = o.start(arguments...); err != nil {
		return nil, err
	}
	if err := d.answers(ctx, d.url+"/healthz"); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// bundle gives the provider a subject as an image.
func (d *deployed) bundle(s *subject, image string) error {
	_, err := bundle.Write(filepath.Join(d.state, "bundles"), image, bundle.Manifest{}, s.model)
	return err
}

// deploy deploys a function with an SLO.
func (d *deployed) deploy(ctx context.Context, name, image string, slo time.Duration) error {
	body, err := json.Marshal(types.FunctionDeployment{Service: name, Image: image,
		Annotations: &map[string]string{"com.openfaas.slo.latency": slo.String()}})
	if err != nil {
		return err
	}
	return d.post(ctx, "/system/functions", body)
}

// scale asks for a number of instances.
func (d *deployed) scale(ctx context.Context, name string, replicas uint64) error {
	body, err := json.Marshal(types.ScaleServiceRequest{ServiceName: name, Replicas: replicas})
	if err != nil {
		return err
	}
	return d.post(ctx, "/system/scale-function/"+name, body)
}

func (d *deployed) post(ctx context.Context, path string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusAccepted && response.StatusCode != http.StatusOK {
		return fmt.Errorf("POST %s: %s: %s", path, response.Status, text)
	}
	return nil
}

// available waits until a function has exactly so many ready instances and no
// others.
func (d *deployed) available(ctx context.Context, name string, n uint64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		status, text, err := get(ctx, http.DefaultClient, d.url+"/system/function/"+name)
		if err == nil && status == http.StatusOK {
			var s types.FunctionStatus
			if err := json.Unmarshal(text, &s); err != nil {
				return err
			}
			if s.AvailableReplicas == n && s.Replicas == n {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not come to %d instances: %w", name, n, ctx.Err())
		case <-d.Exited():
			return fmt.Errorf("the provider exited: %v: %s", d.ProcessState, d.output.String())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// instanceRecord is what the provider writes down of an instance.
type instanceRecord struct {
	Socket  string `json:"socket"`
	Process struct {
		PID int `json:"pid"`
	} `json:"process"`
}

// records lists the provider's instances.
func (d *deployed) records() ([]instanceRecord, error) {
	files, err := filepath.Glob(filepath.Join(d.state, "local", "instances", "*", "instance.json"))
	if err != nil {
		return nil, err
	}
	out := make([]instanceRecord, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &out[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return out, nil
}
