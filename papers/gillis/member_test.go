package gillis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
)

// cutMnist writes mnist and a plan that cuts it over a master and a worker.
func cutMnist(t *testing.T) (file string, c *bundle.Cutting) {
	t.Helper()
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "mnist.onnx")
	if err := m.WriteFile(source); err != nil {
		t.Fatal(err)
	}
	hash, err := model.ContentHash(source)
	if err != nil {
		t.Fatal(err)
	}
	c = &bundle.Cutting{Source: source, Plan: cut.Plan{Model: hash, Members: 2, Rounds: []cut.Round{
		{First: 0, End: 2, Cut: "2x1", On: []int{0, 1}}, {First: 2, End: 5, Cut: "whole", On: []int{1}},
	}}}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "mnist"+bundle.CuttingSuffix)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file, c
}

// A master and a worker, each a process, answer as the whole model does. A worker is killed
// with a part in its hands: the answer comes once the master knows its successor, which cuts
// its own parts out of the model as on a cluster.
func TestMembersAreProcesses(t *testing.T) {
	file, c := cutMnist(t)
	dir := t.TempDir()
	socket := func(name string) string { return filepath.Join(dir, name) }
	out, err := commandtest.Command("instance", "prepare", "--model", file, "--cache", filepath.Join(dir, "cache")).Output()
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	prepared := strings.TrimSpace(string(out))
	start := func(name string, arguments ...string) *exec.Cmd {
		p := commandtest.Command(append(arguments, "--name", "mnist", "--listen", "unix://"+socket(name))...)
		commandtest.UntilReady(t, p)
		t.Cleanup(func() {
			_ = p.Process.Kill()
			_ = p.Wait() // It was killed.
		})
		return p
	}
	start("whole", "instance", "--model", c.Source)
	start("master", "instance", "member", "--prepared", prepared, "--part", "0", "--concurrency", "2")
	worker := start("worker", "instance", "member", "--prepared", prepared, "--part", "1", "--memory", "200000000")

	ask := func(name string) string {
		response, err := commandtest.Client(t, socket(name)).Post("http://instance/", "application/json", strings.NewReader(`{"instances":[`+pixels()+`]}`))
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return fmt.Sprint(response.StatusCode, string(text), err)
	}
	put := func(name string) {
		body := fmt.Sprintf(`{"plan":%q,"workers":[{"member":1,"network":"unix","address":%q}]}`, forkjoin.PlanName(&c.Plan), socket(name))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://instance"+forkjoin.WorkersPath, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := commandtest.Client(t, socket("master")).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusNoContent {
			t.Fatalf("the master answered %d", response.StatusCode)
		}
	}
	put("worker")
	want := ask("whole")
	if got := ask("master"); !near(got, want) {
		t.Errorf("the set answers %s, the model %s", got, want)
	}
	if err := worker.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	answer := make(chan string)
	go func() { answer <- ask("master") }()
	awaitPart(t, commandtest.Client(t, socket("master")))
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	plan := c.Plan.String()
	start("successor", "instance", "member", "--model", c.Source, "--plan", plan, "--part", "1")
	put("successor")
	if got := <-answer; !near(got, want) {
		t.Errorf("after the worker's death: %s, want %s", got, want)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "faas-infer-parts-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// awaitPart waits until the master has computed its own part of the second request, and so has
// sent the worker its part.
func awaitPart(t *testing.T, master *http.Client) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		response, err := master.Get("http://instance/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), `faas_infer_instance_part_seconds_count{by="master",round="1"} 2`) {
			return
		}
	}
	t.Fatal("the second request has not come to its first round")
}

// Flags of members that do not fit together are refused with what to do.
func TestMemberFlags(t *testing.T) {
	file, c := cutMnist(t)
	plan := c.Plan.String()
	for wrong, arguments := range map[string][]string{
		"--part is missing: give the member":               {"member", "--model", c.Source, "--plan", plan},
		`serve it with "faas-infer instance member"`:       {"--model", file},
		"there is no cut model: give --plan":               {"member", "--model", c.Source, "--part", "1"},
		"--part is 3, but there is no cut model":           {"--model", c.Source, "--part", "3"}, // In a pod.
		"--plan needs the model's ONNX file":               {"member", "--model", file, "--plan", plan, "--part", "1"},
		"--concurrency is 0":                               {"member", "--model", c.Source, "--concurrency", "0"},
		"a whole model runs one batch at a time":           {"--model", c.Source, "--concurrency", "2"},
		"a cut model are computed on CPUs":                 {"member", "--model", file, "--part", "1", "--device", "cuda"},
		"unknown flag: --body":                             {"member", "--model", file, "--part", "1", "--body"},
		"--image is for the master":                        {"member", "--model", file, "--part", "1", "--image", "28x28"},
		"--plan: plan: members is 0":                       {"member", "--model", c.Source, "--part", "1", "--plan", strings.Replace(plan, `"members":2`, `"members":0`, 1)},
		"member 2: the plan has members 0 to 1":            {"member", "--model", file, "--part", "2"},
		"the plan is of the model 0":                       {"member", "--model", c.Source, "--part", "1", "--plan", strings.Replace(plan, c.Plan.Model, "0", 1)},
		"--part is 1: only a cut model":                    {"prepare", "--model", c.Source, "--cache", t.TempDir(), "--part", "1"},
		"member 7: the plan has members 0 to 1":            {"prepare", "--model", file, "--cache", t.TempDir(), "--part", "7"},
		"source is missing: it names":                      {"prepare", "--model", damaged(t, `{"plan":{}}`), "--cache", t.TempDir()},
		"the cut model: open /nowhere.plan.json: no such ": {"prepare", "--model", "/nowhere.plan.json", "--cache", t.TempDir()},
	} {
		if _, err := execute(t, append([]string{"instance"}, arguments...)...); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v: got %v, want %q", arguments, err, wrong)
		}
	}
}

func damaged(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "m"+bundle.CuttingSuffix)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// pixels is an image of mnist in JSON.
func pixels() string {
	row := "[" + strings.Repeat("0.5,", 27) + "0.25]"
	return "[[" + strings.Repeat(row+",", 27) + row + "]]"
}

// near reports whether two answers are good and differ by at most 1e-5.
func near(a, b string) bool {
	read := func(text string) (values [][]float64) {
		var body struct{ Predictions [][]float64 }
		text, ok := strings.CutPrefix(text, "200")
		if ok && json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&body) == nil {
			values = body.Predictions
		}
		return values
	}
	x, y := read(a), read(b)
	if len(x) != 1 || len(y) != 1 || len(x[0]) != len(y[0]) || len(x[0]) == 0 {
		return false
	}
	for i := range x[0] {
		if d := x[0][i] - y[0][i]; d > 1e-5 || d < -1e-5 {
			return false
		}
	}
	return true
}
