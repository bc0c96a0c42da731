package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// workbench is a folder in which a user works with the stock faas-cli and a running
// `faas-infer up`.
type workbench struct {
	*stack
	cli, dir string
	// secret is the file of the builder's, repository where templates are pulled from.
	secret, repository string
}

// newWorkbench makes an empty folder and a new home.
func newWorkbench(t *testing.T, s *stack, repository string) *workbench {
	t.Helper()
	cli, err := script("faas-cli.sh")
	if err != nil {
		t.Fatal(err)
	}
	return &workbench{stack: s, cli: cli, dir: t.TempDir(), secret: filepath.Join(s.state, "secrets", "payload-secret"), repository: repository}
}

// command runs a command in the folder and returns its output.
func (w *workbench) command(t *testing.T, input, name string, arguments ...string) (string, error) {
	t.Helper()
	began := time.Now()
	program := name
	if name == "faas-cli" {
		program = w.cli
	}
	c := exec.CommandContext(t.Context(), program, arguments...)
	c.Dir, c.Stdin = w.dir, strings.NewReader(input)
	c.Env = append(os.Environ(), "HOME="+w.dir)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	t.Logf("%6.1f s  $ %s %s", time.Since(began).Seconds(), name, strings.Join(arguments, " "))
	return out.String(), err
}

// must is command that must succeed.
func (w *workbench) must(t *testing.T, input, name string, arguments ...string) string {
	t.Helper()
	out, err := w.command(t, input, name, arguments...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
	return out
}

// deploy runs `faas-cli up` for all functions of stack.yaml.
func (w *workbench) deploy(t *testing.T, flags ...string) (string, error) {
	t.Helper()
	arguments := append([]string{"up", "-f", "stack.yaml", "--gateway", w.door, "--remote-builder", w.door, "--payload-secret", w.secret}, flags...)
	return w.command(t, "", "faas-cli", arguments...)
}

// loose is an objective for requests after the first answer, because tests share their
// machine. A deployment's objective overrides that of its folder.
var loose = []string{"--annotation", "com.openfaas.slo.latency=10s"}

// templatesRepository returns a git repository with what users pull: the templates, and the
// link by which faas-cli finds them.
func templatesRepository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if to, err := os.Readlink("../template"); err != nil || to != "templates" {
		t.Fatalf("the folder template is no link to templates: %q, %v", to, err)
	}
	if err := os.Symlink("templates", filepath.Join(dir, "template")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "templates"), os.DirFS("../templates")); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{"init", "--quiet"}, {"add", "--all"},
		{"-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "--quiet", "--message", "templates"},
	} {
		c := exec.Command("git", arguments...)
		c.Dir = dir
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", arguments[0], err, text)
		}
	}
	return dir
}

// irises are rows of the kinds 0, 1 and 2, which every template's example recognizes.
var irises = [][]float32{{5.1, 3.5, 1.4, 0.2}, {5.9, 2.8, 4.2, 1.3}, {6.7, 3.0, 5.6, 2.3}}

// With the stock faas-cli, a template becomes a function that answers, without changes and
// in at most five commands. Their wall time is printed. Concurrent requests each get their
// own answer, and the README's handler works.
func TestTemplates(t *testing.T) {
	gatewayTests.takeHere(t)
	p := newPlace(t)
	s := p.up(t, "--stack", "")
	repository := templatesRepository(t)
	t.Run("all", func(t *testing.T) {
		users := make(turns, 2)
		for _, lang := range []string{"triton", "tensorflow-serving", "tensorflow-infer", "python-infer", "onnx-infer", "onnx-go-infer"} {
			t.Run(lang, func(t *testing.T) {
				users.take(t)
				w := newWorkbench(t, s, repository)
				w.firstAnswer(t, lang)
				w.loosen(t, lang)
				w.answersTogether(t, lang)
				if handler(t, lang) != "" {
					w.handlerOfTheReadme(t, lang)
				}
			})
		}
		t.Run("requirements that cannot be installed", func(t *testing.T) {
			users.take(t)
			newWorkbench(t, s, repository).cannotInstall(t)
		})
	})
	s.stop(t)
}

func (w *workbench) firstAnswer(t *testing.T, lang string) {
	t.Helper()
	w.must(t, "", "faas-cli", "template", "pull", w.repository)
	began := time.Now()
	shown := w.must(t, "", "faas-cli", "new", lang+"-1", "--lang", lang)
	wantWords(t, shown, "com.openfaas.slo.latency", "stack.yaml")
	if lang == "tensorflow-serving" {
		w.serveByTensorFlow(t, lang)
	}
	w.must(t, w.password, "faas-cli", "login", "--gateway", w.door, "--password-stdin")
	if out, err := w.deploy(t); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	answer := w.must(t, "", "curl", "--silent", "--fail", "--retry", "60", "--max-time", "120", w.through(lang+"-1"),
		"--data", `{"instances": [[5.1, 3.5, 1.4, 0.2]]}`)
	t.Logf("from `faas-cli new` to the first answer: %.1f s", time.Since(began).Seconds())
	if kinds, err := kindsOf([]byte(answer)); err != nil || len(kinds) != 1 || kinds[0] != 0 {
		t.Errorf("%v, %v: %s", kinds, err, answer)
	}
	manifest := readAll(filepath.Join(w.dir, lang+"-1", "bundle.yaml"))
	if slo := w.objective(t, lang); !strings.Contains(manifest, "\n  com.openfaas.slo.latency: "+slo+"\n") {
		t.Errorf("the objective is %q, not the folder's", slo)
	}
}

// objective returns the objective in the function's description.
func (w *workbench) objective(t *testing.T, lang string) string {
	t.Helper()
	f, err := w.faas.GetFunction(t.Context(), lang+"-1", "openfaas-fn")
	if err != nil || f.Annotations == nil {
		t.Fatalf("described as %+v, %v", f, err)
	}
	return (*f.Annotations)["com.openfaas.slo.latency"]
}

func (w *workbench) loosen(t *testing.T, lang string) {
	t.Helper()
	if out, err := w.deploy(t, loose...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if slo := w.objective(t, lang); slo != "10s" {
		t.Errorf("the objective is %q, not the deployment's", slo)
	}
}

// serveByTensorFlow replaces TensorFlow Serving by a program of the tests, because no
// registry that tests can use has TensorFlow Serving. The program runs models with
// TensorFlow in Python and speaks TensorFlow Serving's protocol. It takes seconds to start
// for every measured batch size, so there are few.
func (w *workbench) serveByTensorFlow(t *testing.T, lang string) {
	t.Helper()
	python, err := script("python.sh")
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(w.dir, lang+"-1")
	write(t, readAll("../instance/upstream/testdata/predict.py"), 0o644, folder, "predict.py")
	manifest := strings.NewReplacer("100ms", "5s", `"32"`, `"2"`).Replace(readAll(filepath.Join(folder, "bundle.yaml")))
	write(t, manifest+"server: "+python+" predict.py\n", 0o644, folder, "bundle.yaml")
}

// kindsOf reads the answer to instances: for each the index of the largest number, or the
// number itself if it is a single one.
func kindsOf(body []byte) ([]int, error) {
	var answer struct{ Predictions [][]float64 }
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%w: %s", err, body)
	}
	var kinds []int
	for _, p := range answer.Predictions {
		if len(p) == 1 {
			kinds = append(kinds, int(p[0]))
			continue
		}
		best := 0
		for i, x := range p {
			if x > p[best] {
				best = i
			}
		}
		kinds = append(kinds, best)
	}
	return kinds, nil
}

// answersTogether sends many concurrent requests, with one row and with several.
func (w *workbench) answersTogether(t *testing.T, lang string) {
	t.Helper()
	const requests = 48
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			rows, want := [][]float32{irises[i%3]}, []int{i % 3}
			if i%4 == 0 {
				rows, want = append(rows, irises[(i+1)%3]), append(want, (i+1)%3)
			}
			if err := w.ask(t, lang+"-1", rows, want); err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// ask repeats a request until it has an answer, and compares it. The machine is shared, so
// an objective is sometimes missed.
func (w *workbench) ask(t *testing.T, name string, rows [][]float32, want []int) error {
	body, err := json.Marshal(map[string]any{"instances": rows})
	if err != nil {
		return err
	}
	var a answer
	within(patience, func() bool {
		a, err = try(w.http, http.MethodPost, w.through(name), body)
		return err != nil || a.status != http.StatusServiceUnavailable
	})
	if err != nil || a.status != http.StatusOK {
		return fmt.Errorf("%d %s %w", a.status, a.body, err)
	}
	kinds, err := kindsOf([]byte(a.body))
	if err != nil || fmt.Sprint(kinds) != fmt.Sprint(want) {
		return fmt.Errorf("%v, want %v: %w", kinds, want, err)
	}
	return nil
}

// block returns the first block of a language in a README after some words, "" if there is
// none.
func block(text, words, language string) string {
	_, rest, found := strings.Cut(text, words)
	if !found {
		return ""
	}
	_, rest, found = strings.Cut(rest, "```"+language+"\n")
	if !found {
		return ""
	}
	code, _, _ := strings.Cut(rest, "```")
	return code
}

// handler returns the handler in a template's README, "" if there is none.
func handler(t *testing.T, lang string) string {
	t.Helper()
	return block(readAll(filepath.Join("..", "templates", lang, "README.md")), "## Before and after", "python")
}

// handlerOfTheReadme puts the README's handler into the folder, with the README's
// bundle.yaml and requirements.txt, and deploys again.
func (w *workbench) handlerOfTheReadme(t *testing.T, lang string) {
	t.Helper()
	readme := readAll(filepath.Join("..", "templates", lang, "README.md"))
	folder := filepath.Join(w.dir, lang+"-1")
	manifest := readAll(filepath.Join(folder, "bundle.yaml"))
	_, annotations, _ := strings.Cut(manifest, "annotations:\n")
	const behind = "## Before and after"
	write(t, handler(t, lang), 0o644, folder, "handler.py")
	write(t, block(readme, behind, "yaml")+"annotations:\n"+annotations, 0o644, folder, "bundle.yaml")
	if requirements := block(readme, behind, "text"); requirements != "" {
		write(t, requirements, 0o644, folder, "requirements.txt")
	}
	if out, err := w.deploy(t, loose...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Until the new bundle serves, the old one does.
	w.await(t, patience, "the handler's answers", func() bool {
		a, err := try(w.http, http.MethodPost, w.through(lang+"-1"), []byte(`{"instances": [[6.7, 3.0, 5.6, 2.3]]}`))
		return err == nil && a.status == http.StatusOK && strings.Join(strings.Fields(a.body), "") == `{"predictions":[[2]]}`
	})
	for i, row := range irises {
		if err := w.ask(t, lang+"-1", [][]float32{row}, []int{i}); err != nil {
			t.Error(err)
		}
	}
}

// cannotInstall checks that a build whose packages cannot be installed shows pip's error
// and deploys nothing.
func (w *workbench) cannotInstall(t *testing.T) {
	w.must(t, "", "faas-cli", "template", "pull", w.repository)
	w.must(t, "", "faas-cli", "new", "broken", "--lang", "python-infer")
	w.must(t, w.password, "faas-cli", "login", "--gateway", w.door, "--password-stdin")
	write(t, "numpy==0.0.0.1\n", 0o644, w.dir, "broken", "requirements.txt")
	out, err := w.deploy(t)
	if err == nil {
		t.Error("a function was built whose requirements cannot be installed")
	}
	wantWords(t, out, "broken", "cannot be installed", "numpy==0.0.0.1")
	if _, err := w.faas.GetFunction(t.Context(), "broken", "openfaas-fn"); err == nil {
		t.Error("it was deployed all the same")
	}
}
