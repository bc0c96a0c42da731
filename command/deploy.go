package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drone/envsubst"
	"github.com/openfaas/faas-provider/types"
	sdk "github.com/openfaas/go-sdk"
	"github.com/openfaas/go-sdk/stack"
	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// stackFunction is one function of a stack.yml, as faas-cli would deploy it.
type stackFunction struct{ types.FunctionDeployment }

// full returns its full name.
func (f stackFunction) full() string { return provider.FullName(f.Service, f.Namespace) }

// path returns its name in the path of an invocation.
func (f stackFunction) path() string {
	if f.Namespace == provider.DefaultNamespace {
		return f.Service
	}
	return f.full()
}

// slo returns the objective in its annotations or labels, 0 if there is none or it cannot
// be read. The deployment reports an unreadable one.
func (f stackFunction) slo() time.Duration {
	inference, err := annotation.Parse(f.FunctionDeployment)
	if err != nil {
		return 0
	}
	return inference.SLO
}

// readStack reads a stack.yml with faas-cli's own parser, by name, and the gateway that it names.
func readStack(file string) (out []stackFunction, gateway string, err error) {
	services, err := parseStack(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("there is no %s in this directory: name a file of functions with --stack FILE, "+
			"or start without functions with --stack \"\"", file)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", file, err)
	}
	if services == nil || len(services.Functions) == 0 {
		return nil, "", fmt.Errorf("%s has no functions; add one under functions:", file)
	}
	for name, f := range services.Functions {
		if f.Environment, err = variablesOf(f); err != nil {
			return nil, "", fmt.Errorf("%s: function %s: %w", file, name, err)
		}
		d := types.FunctionDeployment{
			Service: name, Image: f.Image, Namespace: f.Namespace, EnvProcess: f.FProcess, EnvVars: f.Environment,
			Secrets: f.Secrets, Labels: f.Labels, Annotations: f.Annotations, ReadOnlyRootFilesystem: f.ReadOnlyRootFilesystem,
		}
		if d.Namespace == "" {
			d.Namespace = provider.DefaultNamespace
		}
		if f.Constraints != nil {
			d.Constraints = *f.Constraints
		}
		if f.Limits != nil {
			d.Limits = &types.FunctionResources{Memory: f.Limits.Memory, CPU: f.Limits.CPU}
		}
		if f.Requests != nil {
			d.Requests = &types.FunctionResources{Memory: f.Requests.Memory, CPU: f.Requests.CPU}
		}
		out = append(out, stackFunction{d})
	}
	slices.SortFunc(out, func(a, b stackFunction) int { return strings.Compare(a.Service, b.Service) })
	return out, services.Provider.GatewayURL, nil
}

// parseStack parses a stack.yml, or that at a URL. It finds errors first that faas-cli's parser prints, or does not
// explain.
func parseStack(file string) (*stack.Services, error) {
	if u, err := url.Parse(file); err == nil && u.Scheme != "" {
		return stack.ParseYAMLFile(file, "", "", true)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text, err := envsubst.EvalEnv(string(raw))
	if err != nil {
		return nil, err
	}
	var services stack.Services
	if err := yaml.Unmarshal([]byte(text), &services); err != nil {
		return nil, err
	}
	if services.Provider.Name == "" {
		return nil, errors.New("it names no provider; add these lines:\nprovider:\n  name: openfaas")
	}
	return stack.ParseYAMLData([]byte(text), "", "", false)
}

// variablesOf returns a function's variables: those of its files, in order, and its own.
func variablesOf(f stack.Function) (map[string]string, error) {
	all := map[string]string{}
	for _, file := range f.EnvironmentFile {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("environment_file: %w", err)
		}
		var read stack.EnvironmentFile
		if err := yaml.Unmarshal(text, &read); err != nil {
			return nil, fmt.Errorf("environment_file %s: %w", file, err)
		}
		maps.Copy(all, read.Environment)
	}
	maps.Copy(all, f.Environment)
	return all, nil
}

// makeBundles makes missing bundles whose images name an architecture of the zoo.
func makeBundles(functions []stackFunction, root string, log io.Writer) error {
	for _, f := range functions {
		_, err := bundle.Open(root, f.Image)
		if err == nil || !errors.Is(err, bundle.ErrNotFound) {
			continue // The deployment reports other errors.
		}
		name, _, _ := strings.Cut(f.Image, ":")
		m, err := zoo.Make(name, 1)
		if err != nil {
			continue // It is not an architecture of the zoo; the deployment reports the missing bundle.
		}
		fmt.Fprintf(log, "making the bundle %s with random weights\n", f.Image)
		if _, err := bundle.Write(root, f.Image, bundle.Manifest{}, m); err != nil {
			return fmt.Errorf("bundle %s: %w", f.Image, err)
		}
	}
	return nil
}

// deploy deploys the functions at a gateway or provider as faas-cli does: it tries an
// update first and deploys if there is nothing to update. It returns the functions that
// did not exist before, even if it fails.
func deploy(ctx context.Context, client *sdk.Client, functions []stackFunction) (added []stackFunction, err error) {
	for _, f := range functions {
		status, err := client.Update(ctx, f.FunctionDeployment)
		if status == http.StatusNotFound {
			if _, err = client.Deploy(ctx, f.FunctionDeployment); err == nil {
				added = append(added, f)
			}
		}
		if ctx.Err() != nil {
			return added, ctx.Err()
		}
		if err != nil {
			return added, fmt.Errorf("%s was not deployed: %w", f.Service, refusal(err))
		}
	}
	return added, nil
}

// demoRemoval is how long removing the demo's functions may take.
const demoRemoval = 10 * time.Second

// remove removes functions.
func remove(ctx context.Context, client *sdk.Client, functions []stackFunction) error {
	var errs []error
	for _, f := range functions {
		if err := client.DeleteFunction(ctx, f.Service, f.Namespace); err != nil {
			errs = append(errs, fmt.Errorf("%s was not removed: %w", f.Service, refusal(err)))
		}
	}
	return errors.Join(errs...)
}

// openFaaS returns a client of a gateway or provider.
func openFaaS(at, user, password string) (*sdk.Client, error) {
	address, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	if password == "" {
		return sdk.NewClient(address, nil, http.DefaultClient), nil
	}
	return sdk.NewClient(address, &sdk.BasicAuth{Username: user, Password: password}, http.DefaultClient), nil
}

// refusal extracts the provider's message from an error of OpenFaaS's client, which quotes
// the message after its own text.
func refusal(err error) error {
	if _, quoted, ok := strings.Cut(err.Error(), "message: "); ok {
		if text, wrong := strconv.Unquote(quoted); wrong == nil && strings.TrimSpace(text) != "" {
			return errors.New(strings.TrimSpace(text))
		}
	}
	return err
}

// awaitMeasured waits until the execution times of all functions' models are known.
func (s *runningProvider) awaitMeasured(ctx context.Context, functions []stackFunction) error {
	for _, f := range functions {
		if f.slo() == 0 {
			continue // An ordinary function.
		}
		for {
			d, ok := s.parts.Controller.Describe(f.full())
			if !ok {
				return fmt.Errorf("%s was removed", f.Service)
			}
			if d.Measured {
				break
			}
			if d.Problem != "" {
				return fmt.Errorf("%s: %s", f.Service, d.Problem)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-s.served:
				return fmt.Errorf("HTTP server: %w", err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}
