package processes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/forward"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

// revision is a deployment with everything that its instances are started with.
type revision struct {
	*provider.Function
	bundle string
	env    map[string]string
	// secrets are the paths of the function's secret files, by secret name.
	secrets map[string]string
	// fingerprint is equal for all instances that would be started in the same way.
	fingerprint string
}

const (
	// networkVariable tells the backend which network an instance gets.
	networkVariable = "FAAS_INFER_NETWORK"
	processVariable = "fprocess"
)

// revise finds what a deployment needs, or returns an error that names what is missing.
func (c *Controller) revise(f *provider.Function) (*revision, error) {
	if err := c.checkRoom(f); err != nil {
		return nil, err
	}
	program, err := c.options.Bundles.Program(f.Deployment.Image)
	if err != nil {
		return nil, err
	}
	r := &revision{Function: f, bundle: program.Dir, env: environment(f, program), secrets: map[string]string{}}
	// A function that was accepted before comes back, whatever has happened to its program.
	if c.options.Validate != nil && !f.Restored {
		if err := c.options.Validate(r.env, r.bundle); err != nil {
			return nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
		}
	}
	values := map[string][]byte{}
	for _, name := range f.Deployment.Secrets {
		file, err := c.options.Secrets.File(f.Deployment.Namespace, name)
		if err != nil {
			return nil, err
		}
		value, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("secret %q cannot be read: %w", name, err)
		}
		r.secrets[name], values[name] = file, value
	}
	r.fingerprint, err = r.sum(program.Fingerprint, values)
	return r, err
}

// environment returns the bundle's environment. The deployment's variables override
// it, and the deployment's process overrides both.
func environment(f *provider.Function, program Program) map[string]string {
	env := maps.Clone(program.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, f.Deployment.EnvVars)
	if process := f.Deployment.EnvProcess; process != "" {
		env[processVariable] = process
	}
	if program.Network != "" {
		env[networkVariable] = program.Network
	}
	return env
}

// sum returns the fingerprint: a hash over everything that instances are started
// with, including the content of the bundle and of the secrets.
func (r *revision) sum(program string, secrets map[string][]byte) (string, error) {
	spec := r.spec("", "")
	spec.Revision, spec.Secrets = 0, nil
	text, err := json.Marshal(struct {
		Spec    cluster.InstanceSpec
		Program string
		Secrets map[string][]byte
	}{spec, program, secrets})
	if err != nil {
		return "", fmt.Errorf("compare deployments: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// leastMemory is the minimum memory that an instance holds of its node, in bytes: about
// what a watchdog and a small process take. It bounds the number of instances that
// request no memory.
const leastMemory = 16 << 20

// config returns what an instance holds of its node.
func (r *revision) config() cluster.Config {
	held := r.Inference.Requests
	held.Memory = max(held.Memory, leastMemory)
	// GPUs are given to one instance at a time, so a limit is a request, too.
	held.GPU = max(held.GPU, r.Inference.Limits.GPU)
	return cluster.Config{Batch: 1, Resources: held}
}

// checkRoom refuses a function whose instances no machine could hold.
func (c *Controller) checkRoom(f *provider.Function) error {
	wants := max(f.Inference.Limits.GPU, f.Inference.Requests.GPU) / cluster.WholeDevice
	requests := f.Deployment.Requests != nil && !f.Restored
	if wants == 0 && !requests {
		return nil
	}
	nodes, err := c.options.Backend.Nodes(c.keeper.Context())
	if err != nil {
		return err
	}
	if requests {
		if err := keeper.CheckRequests(f.Deployment, f.Inference.Requests, nodes); err != nil {
			return err
		}
	}
	if wants == 0 {
		return nil
	}
	for _, r := range []*types.FunctionResources{f.Deployment.Limits, f.Deployment.Requests} {
		if r != nil && (strings.Trim(r.AmdGPU, "0") != "" || strings.Trim(r.IntelGPU, "0") != "") {
			return errors.New("the function asks for a GPU of AMD or Intel (limits or requests), but without Kubernetes there are only NVIDIA's; leave it out")
		}
	}
	most := 0
	for _, n := range nodes {
		have := 0
		for _, d := range n.Devices {
			if d.Lost == "" && d.Total.GPU == cluster.WholeDevice {
				have++
			}
		}
		most = max(most, have)
	}
	if wants > most {
		return fmt.Errorf("limits.nvidia.com/gpu is %d, but this machine has %d whole GPUs that functions may use; ask for fewer", wants, most)
	}
	return nil
}

// spec returns what an instance is started with.
func (r *revision) spec(id cluster.InstanceID, node string) cluster.InstanceSpec {
	return cluster.InstanceSpec{
		ID: id, Kind: cluster.Process, Function: r.Name, Revision: r.Revision, Node: node,
		Config: r.config(), Limits: r.Inference.Limits, ReadOnlyRoot: r.Deployment.ReadOnlyRootFilesystem,
		Artefact: cluster.Artefact{Bundle: r.bundle}, Fingerprint: r.fingerprint, Env: r.env, Secrets: r.secrets,
	}
}

// longestDrain is the maximum drain grace from a function's own timeouts.
const longestDrain = time.Hour

// drainGrace returns how long the requests of a retired instance may continue: at least
// least, or as long as the timeouts of its watchdog allow, at most longestDrain.
func drainGrace(env map[string]string, least time.Duration) time.Duration {
	for _, name := range []string{"exec_timeout", "write_timeout"} {
		least = max(least, min(forward.Timeout(env, name), longestDrain))
	}
	return least
}
