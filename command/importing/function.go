package importing

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/importing/documents"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// Unset is the objective of a function for which the user gave none. The provider refuses it with a
// sentence that names the annotation.
const Unset = "SET-ME"

// function is a function of a stack.yml, with the fields that an import fills.
type function struct {
	SkipBuild   bool              `yaml:"skip_build"`
	Image       string            `yaml:"image"`
	Environment map[string]string `yaml:"environment,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
	Secrets     []string          `yaml:"secrets,omitempty"`
	Constraints []string          `yaml:"constraints,omitempty"`
	Limits      *resources        `yaml:"limits,omitempty"`
	Requests    *resources        `yaml:"requests,omitempty"`
	program     bool
}

// resources are a function's limits or requests.
type resources struct {
	Memory string `yaml:"memory,omitempty"`
	CPU    string `yaml:"cpu,omitempty"`
}

func (r *resources) openFaaS() *types.FunctionResources {
	if r == nil {
		return nil
	}
	return &types.FunctionResources{Memory: r.Memory, CPU: r.CPU}
}

// annotate sets an annotation of the function and notes which field it came from.
func (m *Model) annotate(key, to, field string, value any) {
	if m.deployment.Annotations == nil {
		m.deployment.Annotations = map[string]string{}
	}
	m.deployment.Annotations[key] = to
	m.note(Changed, field, value, "annotation %s: %s", key, to)
}

// label is annotate for a label.
func (m *Model) label(key, to, field string, value any) {
	if m.deployment.Labels == nil {
		m.deployment.Labels = map[string]string{}
	}
	m.deployment.Labels[key] = to
	m.note(Changed, field, value, "label %s: %s", key, to)
}

// setMaxBatch sets the maximum number of requests in a batch from a field that has it.
func (m *Model) setMaxBatch(o *documents.Object, key string) {
	n, ok := o.Number(key)
	if !o.Has(key) {
		return
	}
	if !ok || n < 1 {
		m.note(Lost, o.Path(key), o.Get(key),
			"the provider finds out whether the model takes batches; the default is %d", annotation.DefaultMaxBatch)
		return
	}
	m.annotate(annotation.InferMaxBatch, strconv.Itoa(min(n, annotation.LargestBatch)), o.Path(key), n)
}

// setScale sets the bounds of the number of instances from fields that have them.
func (m *Model) setScale(o *documents.Object, least, most string) {
	for _, bound := range []struct{ field, key string }{{least, annotation.ScaleMin}, {most, annotation.ScaleMax}} {
		n, ok := o.Number(bound.field)
		switch {
		case !o.Has(bound.field):
		case !ok:
			m.note(Lost, o.Path(bound.field), o.Get(bound.field), "it is no number from 0")
		default:
			m.label(bound.key, strconv.Itoa(n), o.Path(bound.field), n)
		}
	}
}

// setResources sets limits and requests from the resources of a container.
func (m *Model) setResources(o *documents.Object) {
	for _, kind := range []struct {
		key string
		to  **resources
	}{{"limits", &m.deployment.Limits}, {"requests", &m.deployment.Requests}} {
		of := o.Object(kind.key)
		given := &resources{Memory: of.Text("memory"), CPU: of.Text("cpu")}
		if *given != (resources{}) {
			*kind.to = given
		}
		for _, key := range []string{"cpu", "memory"} {
			if of.Has(key) {
				m.note(Kept, of.Path(key), of.Get(key), "%s.%s", kind.key, key)
			}
		}
		if gpus := of.Text("nvidia.com/gpu"); gpus != "" && gpus != "0" {
			m.setDevice(annotation.DeviceCUDA, of.Path("nvidia.com/gpu"), gpus)
		}
		m.loseRest(of)
	}
	m.loseRest(o)
}

// setDevice sets on what the model runs.
func (m *Model) setDevice(device, field string, value any) {
	if m.deployment.program {
		m.note(Lost, field, value,
			"stack.yml has no field for GPUs; set limits of nvidia.com/gpu in the function's object")
		return
	}
	if m.deployment.Annotations[annotation.InferDevice] != device {
		m.annotate(annotation.InferDevice, device, field, value)
	}
}

// settle completes a function, and takes out what a provider of this version refuses.
func (im *Import) settle(m *Model) {
	f := &m.deployment
	f.SkipBuild = true
	f.Image = cmp.Or(f.Image, m.Function+":latest")
	slo := ""
	if !f.program {
		slo = Unset
		if im.options.SLO > 0 {
			slo = im.options.SLO.String()
		}
		if f.Annotations == nil {
			f.Annotations = map[string]string{}
		}
	}
	for {
		refused := m.check()
		if refused == nil {
			break
		}
		if !f.drop(refused.Key) {
			m.refuse("%v", refused)
			return
		}
		m.note(Lost, refused.Key, refused.Value, "this provider refuses it: %s", refused.Why)
	}
	if slo != "" {
		annotation.SetObjective(f.Annotations, slo)
	}
	if c := im.Conversion(m); c != nil {
		m.Steps = append([]string{c.command()}, m.Steps...)
		m.State = Unfinished
	}
	// Steps and notes name the bundle's directory, which follows from the function's name.
	at := filepath.Join(im.options.Out, m.Function)
	for i := range m.Steps {
		m.Steps[i] = strings.ReplaceAll(m.Steps[i], bundleMark, at)
	}
	for i := range m.Notes {
		m.Notes[i].What = strings.ReplaceAll(m.Notes[i].What, bundleMark, at)
	}
}

// bundleMark stands for the bundle's directory in notes and steps until the function has a name.
const bundleMark = "BUNDLE"

// check returns what a provider would refuse of the function, nil if nothing. An objective is assumed.
func (m *Model) check() *annotation.Error {
	f := m.deployment
	d := types.FunctionDeployment{
		Service: m.Function, Image: f.Image, EnvVars: f.Environment, Secrets: f.Secrets, Constraints: f.Constraints,
		Limits: f.Limits.openFaaS(), Requests: f.Requests.openFaaS(),
	}
	annotations, labels := maps.Clone(f.Annotations), maps.Clone(f.Labels)
	if !f.program {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotation.SetObjective(annotations, "1s")
	}
	d.Annotations, d.Labels = &annotations, &labels
	_, err := annotation.Parse(d)
	if err == nil {
		return nil
	}
	if refused := (*annotation.Error)(nil); errors.As(err, &refused) {
		return refused
	}
	return &annotation.Error{Key: "function", Value: m.Function, Why: fmt.Sprint(err)}
}

// drop takes a field out of a function, and reports whether it was there.
func (f *function) drop(key string) bool {
	for _, of := range []map[string]string{f.Annotations, f.Labels, f.Environment} {
		if _, there := of[key]; there {
			delete(of, key)
			return true
		}
	}
	for name, of := range map[string]*resources{"limits": f.Limits, "requests": f.Requests} {
		if of == nil {
			continue
		}
		switch {
		case key == name+".cpu" && of.CPU != "":
			of.CPU = ""
			return true
		case key == name+".memory" && of.Memory != "":
			of.Memory = ""
			return true
		}
	}
	switch {
	case key == "secrets" && f.Secrets != nil:
		f.Secrets = nil
		return true
	case key == "constraints" && f.Constraints != nil:
		f.Constraints = nil
		return true
	}
	return false
}
