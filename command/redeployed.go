package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openfaas/faas-provider/types"
	sdk "github.com/openfaas/go-sdk"

	"github.com/faas-infer/faas-infer/provider"
)

// deployments are functions' deployments by full name.
type deployments map[string]types.FunctionDeployment

// deploymentsOf returns the deployments of all functions of a provider's store.
func deploymentsOf(kept provider.Store) (deployments, error) {
	all, err := kept.Functions("")
	out := deployments{}
	for _, f := range all {
		out[provider.FullName(f.Deployment.Service, f.Deployment.Namespace)] = f.Deployment
	}
	return out, err
}

// deployStack deploys the functions of the stack file, says what that undoes, and returns the functions that did not
// exist before, even if it fails.
func (f *upFlags) deployStack(ctx context.Context, s *runningProvider, client *sdk.Client, functions []stackFunction, out io.Writer) (added []stackFunction, err error) {
	before, err := deploymentsOf(s.parts.Store)
	if err != nil {
		return nil, err
	}
	if added, err = deploy(ctx, client, functions); err != nil || f.demo {
		return added, err // The demo restores the state.
	}
	now, err := deploymentsOf(s.parts.Store)
	if err != nil {
		return added, err
	}
	file := filepath.Join(f.state, "stack.json")
	last, err := readDeployments(file)
	if err != nil {
		s.log.Warn().Err(err).Msg("up cannot say whether the stack file undoes changes")
	}
	for _, line := range overwritten(f.stackFile, functions, last, before, now) {
		fmt.Fprintln(out, line)
	}
	return added, keepDeployed(file, last, now, functions)
}

// readDeployments reads a file of deployments, which need not be there. They are never nil.
func readDeployments(file string) (deployments, error) {
	out := deployments{}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return deployments{}, fmt.Errorf("the deployments of the last start: %s: %w", file, err)
	}
	return out, nil
}

// keepDeployed keeps the deployments of a stack file's functions beside the earlier ones in last.
func keepDeployed(file string, last, now deployments, functions []stackFunction) error {
	for _, f := range functions {
		last[f.full()] = now[f.full()]
	}
	text, err := json.Marshal(last)
	if err != nil {
		return err
	}
	return replaceFile(file, text)
}

// overwritten returns a sentence for each function of a stack file that was changed or removed between its last
// deployment and this one, which undoes that: last is what the earlier one made, before what there was just
// before this one, and now what this one made.
func overwritten(file string, functions []stackFunction, last, before, now deployments) (said []string) {
	for _, f := range functions {
		made, known := last[f.full()]
		if !known {
			continue
		}
		was, there := before[f.full()]
		if !there {
			said = append(said, fmt.Sprintf(`%s: %s brings it back, it was removed since. Remove it there, or start with --stack ""`, f.path(), file))
			continue
		}
		if undone := undone(file, fields(made), fields(was), fields(now[f.full()])); undone != "" {
			said = append(said, fmt.Sprintf(`%s: %s; %s counts. Write the change into it, or start with --stack ""`, f.path(), undone, file))
		}
	}
	return said
}

// undone says which changes from made to was are undone by now.
func undone(file string, made, was, now map[string]string) string {
	var parts []string
	keys := maps.Clone(made)
	maps.Copy(keys, was)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if was[key] == made[key] || was[key] == now[key] {
			continue
		}
		if strings.HasPrefix(key, "envVars.") { // They may be secret.
			parts = append(parts, fmt.Sprintf("%s was changed since", key))
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(key, "annotations."), "labels.")
		parts = append(parts, fmt.Sprintf("%s says %s %s, %s was set since", file, name, orNone(now[key]), orNone(was[key])))
	}
	return strings.Join(parts, "; ")
}

func orNone(value string) string {
	if value == "" {
		return "nothing"
	}
	return value
}

// fields returns the values of a deployment by their paths in its JSON, such as limits.cpu.
func fields(d types.FunctionDeployment) map[string]string {
	out := map[string]string{}
	text, _ := json.Marshal(d) // It cannot fail for a struct of strings.
	var tree map[string]any
	_ = json.Unmarshal(text, &tree)
	for key, value := range tree {
		if inner, ok := value.(map[string]any); ok {
			for name, v := range inner {
				out[key+"."+name] = fmt.Sprint(v)
			}
		} else {
			out[key] = fmt.Sprint(value)
		}
	}
	return out
}
