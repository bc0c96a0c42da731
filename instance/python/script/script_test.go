package script

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// run runs a script of these lines after its imports.
func run(t *testing.T, ctx context.Context, text string) (last Event, steps []string, err error) {
	t.Helper()
	scripts := fstest.MapFS{"scripts/work.py": {Data: []byte("import os, sys, tell\n" + text)}}
	last, err = Run(ctx, Options{
		Python: "python3", Scripts: scripts, Name: "work.py", Dir: t.TempDir(), Job: []byte(`{"n": 3}`), Log: io.Discard,
		Step: func(s string) { steps = append(steps, s) },
	})
	return last, steps, err
}

func TestRun(t *testing.T) {
	last, steps, err := run(t, t.Context(), `
def work(job, tell):
    print("a library's line")
    tell.step("one")
    os.write(tell.out.fileno(), b'no event\n{"step": "tw')
    os.write(tell.out.fileno(), b'o"}\n')
    return {"twice": 2 * job["n"], "telemetry": os.environ["ORT_DISABLE_TELEMETRY"]}
tell.main(work)
`)
	if err != nil || string(last.Done) != `{"twice": 6, "telemetry": "1"}` || !slices.Equal(steps, []string{"one", "two"}) {
		t.Errorf("%s, %q, %v", last.Done, steps, err)
	}
}

func TestRunTellsWhatIsWrong(t *testing.T) {
	last, _, err := run(t, t.Context(), "def work(job, tell): raise tell_.Wrong('no model', [{'type': 'A'}])\ntell_ = tell\ntell.main(work)\n")
	if err != nil || last.Error != "no model" || !strings.Contains(string(last.Line), `"type": "A"`) {
		t.Errorf("%+v, %v", last, err)
	}
	for text, want := range map[string]string{
		"sys.exit('gone')":        "work.py ended without a result: gone",
		"os.kill(os.getpid(), 9)": "work.py ended without a result: was killed by SIGKILL",
		"pass":                    "work.py ended without a result",
	} {
		if _, _, err := run(t, t.Context(), text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A script that needs more memory than it may have ends with a sentence, and no other has less.
func TestRunBoundsMemory(t *testing.T) {
	const work = "def work(job, tell): return {'bytes': len(bytearray(1 << 30))}\ntell.main(work)\n"
	for memory, want := range map[int64]string{256 << 20: "work.py needs more than 256 MiB of memory for this model", 4 << 30: ""} {
		last, err := Run(t.Context(), Options{
			Python: "python3", Scripts: fstest.MapFS{"scripts/work.py": {Data: []byte("import tell\n" + work)}}, Name: "work.py", Dir: t.TempDir(),
			Job: []byte("{}"), Memory: memory, Log: io.Discard,
		})
		if want == "" && (err != nil || last.Done == nil) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("with %d MiB: %s, %v", memory>>20, last.Done, err)
		}
	}
}

// The script is killed if the context ends, and Start may run it in another way.
func TestRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, Options{
		Python: "python3", Scripts: fstest.MapFS{"scripts/work.py": {Data: []byte("import time\ntime.sleep(1000)")}}, Name: "work.py", Dir: t.TempDir(), Log: io.Discard,
		Start: func(c *exec.Cmd) error {
			if err := c.Start(); err != nil {
				return err
			}
			cancel()
			return c.Wait()
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
