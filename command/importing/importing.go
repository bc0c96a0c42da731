// Package importing reads models that other servers serve, and says what each becomes here: a function
// with its settings, a bundle with the model's files, and a note for every field of the source that is
// kept, changed or lost. It reads files only: it calls no cluster and no network, and neither runs nor
// converts a model. Begin reading at [Read] and [Model]; [Import.Write] writes the functions and bundles.
// Each source has a file, and a row in sources.
package importing

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/importing/documents"
)

// States say what became of a model.
const (
	// Ready: its function can be deployed.
	Ready = "ready"
	// Unfinished: its function can be deployed once its steps are done.
	Unfinished = "unfinished"
	// Refused: it gets no function.
	Refused = "refused"
	// Described: it is no model. It says something about models, and nothing is deployed for it.
	Described = "no model"
)

// Fates say what became of a field.
const (
	// Kept: the function has the same.
	Kept = "kept"
	// Changed: the function has something in its place.
	Changed = "changed"
	// Lost: nothing takes its place.
	Lost = "not kept"
)

// Options say what to read.
type Options struct {
	// Source is one of [Sources], "" to find it out.
	Source string
	// Paths are files and directories; "-" is Stdin, with manifests of Kubernetes.
	Paths []string
	// Stdin is read for the path "-".
	Stdin fs.File
	// Files say where the files at a URI are on this machine: a directory or file by URI. The rest of a
	// longer URI is a path below the directory.
	Files map[string]string
	// SLO is the objective of every function, 0 to leave a mark in its place.
	SLO time.Duration
	// Out is the directory that [Import.Write] makes. Steps name it.
	Out string
}

// Import is what reading has found.
type Import struct {
	// Models are the models found, in the order of the paths.
	Models []*Model `json:"models"`
	// Ignored counts the documents of other kinds in manifests of Kubernetes, by kind.
	Ignored map[string]int `json:"ignored,omitempty"`

	options Options
	trees   []*documents.Tree
}

// Close closes the sources. [Import.Write] needs them open.
func (im *Import) Close() error {
	var errs []error
	for _, t := range im.trees {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

// Model is one model of a source, and the function that it becomes.
type Model struct {
	// Source is one of [Sources], Name the model's name there, and From the file or directory.
	Source string `json:"source"`
	Name   string `json:"name"`
	From   string `json:"from"`
	// Function is the name of the function, "" if there is none. State is one of the states.
	Function string `json:"function,omitempty"`
	State    string `json:"state"`
	// Why says why it is refused.
	Why string `json:"why,omitempty"`
	// Notes say what became of its fields.
	Notes []Note `json:"notes,omitempty"`
	// Steps are what must be done before the function can be deployed: sentences or commands, in order.
	Steps []string `json:"steps,omitempty"`

	deployment function
	bundle     *made
	// artefact is the URI at which the model's files are, and format their format there.
	artefact, format string
}

// Note says what became of a field.
type Note struct {
	// Field is the field's path in the source, Value its value there, shortened.
	Field string `json:"field"`
	Value string `json:"value,omitempty"`
	// Fate is one of the fates. The text in What tells the field's new form, or the
	// reason why it is lost.
	Fate string `json:"fate"`
	What string `json:"what,omitempty"`
}

// source is a kind of model server.
type source struct {
	name string
	// detect reports whether a directory or archive is of this source.
	detect func(t *documents.Tree) bool
	// read reads all models of it.
	read func(im *Import, t *documents.Tree) error
}

// sources is the table of what can be read. For a path without a stated source, the first one counts that
// detects it. Manifests of Kubernetes are files, and [Import.readManifests] reads these.
var sources []source

func init() {
	sources = []source{
		{KServe, nil, nil}, {Seldon, nil, nil},
		{TorchServe, isTorchServe, readTorchServe},
		{BentoML, isBentoML, readBentoML},
		{MLServer, isMLServer, readMLServer},
		{Triton, isTriton, readTriton},
	}
}

// The sources.
const (
	KServe     = "kserve"
	Seldon     = "seldon"
	TorchServe = "torchserve"
	BentoML    = "bentoml"
	MLServer   = "mlserver"
	Triton     = "triton"
)

// Sources lists the sources by name.
func Sources() []string {
	var names []string
	for _, s := range sources {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// Read reads the models at the paths. Models that cannot be served are in the result, refused with the
// reason. The error says which path cannot be read at all, and the models of the others are lost.
func Read(o Options) (*Import, error) {
	im := &Import{options: o, Ignored: map[string]int{}}
	for _, path := range o.Paths {
		if err := im.readPath(path); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), im.Close())
		}
	}
	if len(im.Models) == 0 {
		return nil, errors.Join(fmt.Errorf("%s: no model was found%s", strings.Join(o.Paths, ", "), im.ignored()),
			im.Close())
	}
	im.resolveArtefacts()
	im.finish()
	return im, nil
}

// readPath reads one path, whose source is found out if none is stated.
func (im *Import) readPath(path string) error {
	if path == "-" {
		return im.readManifests(im.options.Stdin, "standard input")
	}
	t, err := im.open(path)
	if err != nil {
		return err
	}
	if t.FS == nil {
		return im.readFile(path)
	}
	return im.readTree(t)
}

// open opens a directory or an archive until [Import.Close].
func (im *Import) open(path string) (*documents.Tree, error) {
	t, err := documents.Open(path)
	if err == nil {
		im.trees = append(im.trees, t)
	}
	return t, err
}

// ignored lists the kinds of manifests that are no models, for an error.
func (im *Import) ignored() string {
	if len(im.Ignored) == 0 {
		return ""
	}
	return "; it has other objects: " + strings.Join(slices.Sorted(maps.Keys(im.Ignored)), ", ")
}

// readTree reads a directory or an archive.
func (im *Import) readTree(t *documents.Tree) error {
	stated := im.options.Source
	for _, s := range sources {
		if s.read == nil || stated != "" && stated != s.name {
			continue
		}
		if s.detect(t) {
			return s.read(im, t)
		}
		if stated != "" {
			return fmt.Errorf("it is no %s; %s", stated, wants[stated])
		}
	}
	if stated == KServe || stated == Seldon {
		return errors.New("it is a directory; give the YAML files in it, for example with DIR/*.yaml")
	}
	return fmt.Errorf("it is of no known source; %s", wantsAny())
}

// wants says what a source's path must be.
var wants = map[string]string{
	KServe:     "it needs YAML of serving.kserve.io, as `kubectl get isvc -o yaml` prints it",
	Seldon:     "it needs YAML of mlops.seldon.io, as `kubectl get models.mlops.seldon.io -o yaml` prints it",
	TorchServe: "it needs a .mar file, or its directory, with " + marManifest,
	BentoML: "it needs a model's directory in BentoML's store, with " + bentoModel + ", or the store's directory " +
		"models",
	MLServer: "it needs a directory with " + mlserverSettings + ", or one of such directories",
	Triton: "it needs a model repository: a directory for each model, with config.pbtxt or a directory for each " +
		"version",
}

func wantsAny() string {
	var all []string
	for _, name := range Sources() {
		all = append(all, name+": "+strings.TrimPrefix(wants[name], "it needs "))
	}
	return "known are " + strings.Join(all, "; ")
}

// readFile reads a file that is no archive: manifests of Kubernetes.
func (im *Import) readFile(path string) error {
	switch stated := im.options.Source; stated {
	case "", KServe, Seldon:
	default:
		return fmt.Errorf("it is no %s; %s", stated, wants[stated])
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return im.readManifests(f, path)
}

// add adds a model of a source.
func (im *Import) add(source, name, from string) *Model {
	m := &Model{Source: source, Name: name, From: from, State: Ready}
	im.Models = append(im.Models, m)
	return m
}

// refuse says that a model gets no function, and why.
func (m *Model) refuse(format string, args ...any) {
	m.State, m.Why = Refused, fmt.Sprintf(format, args...)
	m.bundle, m.artefact, m.Steps = nil, "", nil
}

// step adds what must be done before the function can be deployed.
func (m *Model) step(format string, args ...any) {
	if m.State != Ready && m.State != Unfinished {
		return
	}
	m.State = Unfinished
	m.Steps = append(m.Steps, fmt.Sprintf(format, args...))
}

// note says what became of a field.
func (m *Model) note(fate, field string, value any, format string, args ...any) {
	m.Notes = append(m.Notes, Note{Field: field, Value: documents.Short(value), Fate: fate, What: fmt.Sprintf(format, args...)})
}

// Bundled reports whether the function has a bundle of its own.
func (m *Model) Bundled() bool { return m.bundle != nil }

// finish names the functions, gives them their objective and checks what the provider would refuse.
func (im *Import) finish() {
	taken := map[string]bool{}
	for _, m := range im.Models {
		if m.State != Ready && m.State != Unfinished {
			continue
		}
		m.Function = functionName(m.Name)
		if m.Function != m.Name {
			m.note(Changed, "name", m.Name, "%s: a function's name has lower-case letters, digits and hyphens",
				m.Function)
		}
		if base := m.Function; taken[base] {
			for n := 2; taken[m.Function]; n++ {
				tail := fmt.Sprintf("-%d", n)
				m.Function = strings.TrimRight(base[:min(len(base), maxName-len(tail))], "-") + tail
			}
			m.note(Changed, "name", m.Name, "%s: another model is called %s", m.Function, base)
		}
		taken[m.Function] = true
		im.settle(m)
	}
}

// maxName is the maximum length of a function's name: that of a DNS label.
const maxName = 63

// functionName returns the name of the function for a model: a hyphen stands for each run of characters
// that a function's name cannot have.
func functionName(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if s := b.String(); s != "" && !strings.HasSuffix(s, "-") {
			b.WriteByte('-')
		}
	}
	s := b.String()
	return cmp.Or(strings.TrimRight(s[:min(len(s), maxName)], "-"), "model")
}

// Count returns how many models have a state.
func (im *Import) Count(state string) (n int) {
	for _, m := range im.Models {
		if m.State == state {
			n++
		}
	}
	return n
}

// lose reports fields as lost for a reason.
func (m *Model) lose(o *documents.Object, reason string, keys ...string) {
	for _, key := range keys {
		if value := o.Get(key); value != nil && !documents.IsEmpty(value) {
			m.note(Lost, o.Path(key), value, "%s", reason)
		}
	}
}

// loseRest reports all fields that were not read as lost.
func (m *Model) loseRest(o *documents.Object) {
	for _, key := range o.Unread() {
		m.note(Lost, o.Path(key), o.Get(key), "functions have no such field")
	}
}
