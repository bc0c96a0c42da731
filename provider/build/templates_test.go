package build

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openfaas/go-sdk/builder"
	"github.com/openfaas/go-sdk/stack"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// templateDir is where faas-cli finds templates in a repository: a link.
const templateDir = "../../template"

// engines are those of the templates' examples.
var engines = map[string]string{
	"onnx-infer": bundle.EngineONNX, "onnx-go-infer": bundle.EngineONNX, "tensorflow-infer": bundle.EngineTensorFlow, "python-infer": bundle.EnginePython,
	"tensorflow-serving": bundle.EngineTensorFlowServing, "triton": bundle.EngineTriton,
}

// With faas-cli's own code for them, every template's folder, unchanged, becomes the
// bundle of a model that has an objective.
func TestTemplates(t *testing.T) {
	entries, err := os.ReadDir(templateDir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		found = append(found, e.Name())
		t.Run(e.Name(), func(t *testing.T) { buildTemplate(t, e.Name()) })
	}
	if len(found) != len(engines) {
		t.Errorf("the templates are %v", found)
	}
}

func buildTemplate(t *testing.T, name string) {
	dir := filepath.Join(templateDir, name)
	language, err := stack.ParseYAMLForLanguageTemplate(filepath.Join(dir, "template.yml"))
	if err != nil || language.Language != name || language.FProcess != "" || !strings.Contains(language.WelcomeMessage, "com.openfaas.slo.latency: ") {
		t.Errorf("template.yml: %+v, %v", language, err)
	}
	context, err := builder.CreateBuildContext("spam", filepath.Join(dir, handlerDir), name, nil,
		builder.WithTemplateDir(templateDir), builder.WithBuildDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	checkDockerfile(t, context)
	root := t.TempDir()
	_, s := serve(t, Options{Root: root})
	result, err := client(t, s, secret).Build(packed(t, context, "team/spam:v1"))
	if err != nil || result.Status != builder.BuildSuccess {
		t.Fatalf("%+v, %v", result, err)
	}
	b, err := bundle.Open(root, "team/spam:v1")
	if err != nil {
		t.Fatal(err)
	}
	if b.Name != "spam" || b.Engine != engines[name] || b.Annotations["com.openfaas.slo.latency"] == "" || b.Description == "" {
		t.Errorf("%+v", b.Manifest)
	}
	if b.Processed() && b.HandlerProgram() != "handler" {
		t.Errorf("the handler's program is %q", b.HandlerProgram())
	}
	for _, file := range []string{"Dockerfile", "template.yml", "main.go", "go.work"} {
		if _, err := os.Stat(filepath.Join(b.Dir, file)); err == nil {
			t.Errorf("the bundle has the template's %s", file)
		}
	}
}

var (
	fromLine = regexp.MustCompile(`(?m)^FROM (\S+)(?: AS (\S+))?$`)
	argLine  = regexp.MustCompile(`(?m)^ARG ([A-Z_]+)=(\S+)$`)
	copyLine = regexp.MustCompile(`(?m)^COPY (--\S+ )?(\S+) \S+$`)
	reads    = regexp.MustCompile(`/requirements/(\S+)\.txt`)
	pinned   = regexp.MustCompile(`^[a-z.]+/[a-z/-]+:[0-9][0-9a-z.-]*$`)
)

// checkDockerfile checks a Dockerfile as far as possible without an engine. Build
// arguments name its base images, with a release unless they are ours. The files that it
// copies are in the context, both variants have the files that they install, and the
// last user is not root.
func checkDockerfile(t *testing.T, context string) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(context, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)
	arguments := map[string]string{}
	for _, m := range argLine.FindAllStringSubmatch(text, -1) {
		arguments[m[1]] = m[2]
		if m[1] != "VARIANT" && m[1] != "FAAS_INFER" && !pinned.MatchString(m[2]) {
			t.Errorf("%s is %s, which is no release", m[1], m[2])
		}
	}
	var stages []string
	for _, m := range fromLine.FindAllStringSubmatch(text, -1) {
		base := m[1]
		for name, value := range arguments {
			base = strings.Replace(base, "${"+name+"}", value, 1)
		}
		if base == m[1] && !slices.Contains(stages, base) {
			t.Errorf("FROM %s is neither a stage nor named by a build argument", base)
		}
		stages = append(stages, m[2])
	}
	if arguments["FAAS_INFER"] == "" {
		t.Errorf("build arguments %v, stages %v", arguments, stages)
	}
	for _, m := range copyLine.FindAllStringSubmatch(text, -1) {
		if stage, ok := strings.CutPrefix(strings.TrimSpace(m[1]), "--from="); ok {
			if !slices.Contains(stages, stage) {
				t.Errorf("%s copies from a stage that there is not", m[0])
			}
		} else if _, err := os.Stat(filepath.Join(context, m[2])); err != nil {
			t.Errorf("%s: %v", m[0], err)
		}
	}
	for _, m := range reads.FindAllStringSubmatch(text, -1) {
		variants := []string{m[1]}
		if m[1] == "${VARIANT}" {
			variants = []string{"cpu", "cuda"}
		}
		for _, variant := range variants {
			if _, err := os.Stat(filepath.Join(context, "requirements", variant+".txt")); err != nil {
				t.Error(err)
			}
		}
	}
	if at := strings.LastIndex(text, "\nFROM "); !strings.Contains(text[at:], "\nUSER 65532:65532\n") || !strings.Contains(text[at:], "dev.faas-infer.bundle=/bundle") {
		t.Error("the image runs as root, or does not say where its bundle is")
	}
}

// The images install the same engine packages as a machine without images.
func TestTemplatesHaveTheEnginesRequirements(t *testing.T) {
	for template, engine := range map[string]string{"tensorflow-infer": "tensorflow", "python-infer": "python", "triton": "triton"} {
		own, err := os.ReadFile(filepath.Join(templateDir, template, "requirements", "cpu.txt"))
		if err != nil {
			t.Fatal(err)
		}
		base, err := os.ReadFile("../../instance/python/environment/base/" + engine + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := packages(own), packages(base); !slices.Equal(got, want) {
			t.Errorf("%s installs %v, the engine %v", template, got, want)
		}
	}
}

// packages returns the lines of a requirements file that name packages.
func packages(text []byte) (names []string) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			names = append(names, line)
		}
	}
	slices.Sort(names)
	return names
}

// The images run ONNX models on GPUs with the same release, and the same
// packages of CUDA as a machine without images, each with its checksum.
func TestTemplatesHaveTheEnginesRelease(t *testing.T) {
	script, err := os.ReadFile("../../scripts/onnxruntime.sh")
	if err != nil {
		t.Fatal(err)
	}
	release := regexp.MustCompile(`(?m)^cuda_version=(\S+)$`).FindStringSubmatch(string(script))
	own, err := os.ReadFile(filepath.Join(templateDir, "onnx-infer", "requirements", "cuda.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(release) != 2 || !strings.Contains(string(own), "\nonnxruntime-gpu=="+release[1]+" --hash=sha256:") || !strings.Contains(string(script), "templates/onnx-infer/requirements/cuda.txt") {
		t.Errorf("onnx-infer installs %v, and scripts/onnxruntime.sh fetches %v", packages(own), release)
	}
	for _, line := range packages(own) {
		if !regexp.MustCompile(`^[a-z0-9-]+==[0-9.]+ --hash=sha256:[0-9a-f]{64}$`).MatchString(line) {
			t.Errorf("%s has no version or no checksum", line)
		}
	}
	other, err := os.ReadFile(filepath.Join(templateDir, "onnx-go-infer", "requirements", "cuda.txt"))
	if err != nil || string(other) != string(own) {
		t.Errorf("onnx-go-infer installs %v: %v", packages(other), err)
	}
}
