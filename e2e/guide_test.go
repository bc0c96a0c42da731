package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/e2e/guide"
)

// guidePatience is how long one command of the guide may take. Some build the program or
// install Python packages, and models are cut and variants made with CPU time that nothing else needs.
const guidePatience = 10 * time.Minute

// page is a page of docs/ about one machine. prepare makes what its commands need, if it is not nil.
type page struct {
	name    string
	prepare func(*desk, *testing.T)
}

// homes are two readers' homes with the pages that each follows in this order. The state of one is not where it is by
// default.
var homes = []struct {
	name      string
	elsewhere bool
	pages     []page
}{
	{"default", false, []page{{name: "first-function"}, {name: "programs"}, {"payloads", (*desk).payloads}, {name: "partition"}, {name: "one-machine"}, {name: "tutorial"}}},
	{"elsewhere", true, []page{{name: "tensorflow"}, {name: "tuning"}, {name: "variants"}, {name: "importing"}, {name: "access"}, {name: "rollouts"}, {name: "troubleshooting"}}},
}

// others are the pages that this test skips: the index, the reference, the table of
// formats, the page about URIs, whose servers are examples, the console's views and those that answer questions, which
// have no commands to follow, the pages about a cluster, which package e2e/kubernetes tests, the page about GPUs, which
// the tests' machine does not have, that about releases, which installs programs and services, and that about texts,
// whose models' weights come from a hub.
var others = []string{
	"README", "reference", "models", "model-uris", "console", "faq", "glossary", "comparison", "kubernetes", "from-faas-netes",
	"gpus", "releases", "text",
}

// Every command of the guide does what the guide says. A reader follows the pages one after another in one home, with
// what the earlier ones left there. The guide's TestPagesShareNoNames checks that any order would do.
func TestGuide(t *testing.T) {
	if onCluster == nil {
		providerTests.begun.Add(1) // Until its pages are in the lanes.
		defer providerTests.begun.Done()
		t.Parallel()
	}
	known := slices.Clone(others)
	for _, home := range homes {
		for _, p := range home.pages {
			known = append(known, p.name)
		}
		t.Run(home.name, func(t *testing.T) {
			d := newDesk(t, home.elsewhere)
			for _, p := range home.pages {
				t.Run(p.name, func(t *testing.T) { d.follow(t, p) })
			}
		})
	}
	files, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".md"); !slices.Contains(known, name) {
			t.Errorf("docs/%s.md is run by no test; add it to the homes", name)
		}
	}
	if len(files) != len(known) {
		t.Errorf("the test knows %v, and there are %v", known, files)
	}
}

// follow runs a page's commands.
func (d *desk) follow(t *testing.T, p page) {
	blocks, err := guide.Parse(readAll("../docs/" + p.name + ".md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := d.work
	if p.name == "first-function" { // It begins without a checkout.
		if dir = filepath.Join(d.dir, "nothing"); os.Mkdir(dir, 0o755) != nil {
			t.Fatal(dir)
		}
	}
	d.reader = &guide.Reader{Dir: dir, Env: slices.Clone(d.env), Patience: guidePatience, Start: d.network.start, Look: d.looks(t), Log: t.Output()}
	if os.Getenv(picturesVar) == "" { // Only the pictures show a whole minute.
		d.reader.Replace = []string{"sleep 60", "sleep 1"}
	}
	d.end = nil
	d.awaitGatewayPorts(t)
	if p.prepare != nil {
		p.prepare(d, t)
	}
	if err := d.reader.Follow(t.Context(), blocks); err != nil {
		t.Errorf("docs/%s.md, %v", p.name, err)
	}
	if d.end != nil {
		d.end()
	}
	// What runs on after its page would disturb the next.
	await(t, patience, "what the page started to end", func() bool { return len(d.instances()) == 0 })
}

// desk is the reader's place: a home that has only the machine's profiles, and a checkout after make.
type desk struct {
	*place
	// home and work are directories; work is the checkout. env is the reader's environment.
	home, work string
	env        []string
	// reader follows the present page. end ends what was prepared for it, if it is not nil.
	reader *guide.Reader
	end    func()
}

// newDesk makes a desk. With elsewhere its state is not where it is by default.
func newDesk(t *testing.T, elsewhere bool) *desk {
	t.Helper()
	p := gatewayPlace(t)
	d := &desk{place: p, home: filepath.Join(p.dir, "home"), work: filepath.Join(p.dir, "work")}
	known := p.state
	states := filepath.Join(d.home, ".local", "state")
	var extra []string
	if elsewhere {
		states = filepath.Join(d.home, "states")
		extra = []string{"XDG_STATE_HOME=" + states}
	}
	p.state = filepath.Join(states, "faas-infer")
	p.bundles = filepath.Join(p.state, "bundles")
	source, err := guideSource()
	if err == nil {
		err = os.CopyFS(p.state, os.DirFS(known))
	}
	if err == nil {
		err = os.Mkdir(d.work, 0o755)
	}
	// The guide's address is that of this source.
	if err == nil {
		err = os.WriteFile(filepath.Join(d.home, ".gitconfig"), []byte(fmt.Sprintf(
			"[url %q]\n\tinsteadOf = https://github.com/faas-infer/faas-infer\n[safe]\n\tdirectory = *\n", source)), 0o644)
	}
	if err == nil {
		err = d.checkOut(source)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.env = append(d.environment(t), extra...)
	return d
}

// checkOut puts the source and the programs that the tests have built into d.work.
func (d *desk) checkOut(source string) error {
	if text, err := exec.Command("git", "clone", "-q", source, d.work).CombinedOutput(); err != nil {
		return fmt.Errorf("git clone: %w: %s", err, text)
	}
	if err := os.Mkdir(filepath.Join(d.work, "bin"), 0o755); err != nil {
		return err
	}
	return errors.Join(os.Symlink(suite.binary, filepath.Join(d.work, "bin", "faas-infer")), os.Symlink(suite.lab, filepath.Join(d.work, "bin", "faas-infer-lab")))
}

// environment returns the tests' environment with another home, but with the same cache for
// downloads.
func (d *desk) environment(t *testing.T) []string {
	t.Helper()
	text, err := exec.Command("go", "env", "GOPATH", "GOMODCACHE", "GOCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	env := slices.DeleteFunc(guide.Environment(os.Environ()), func(v string) bool { return strings.HasPrefix(v, "XDG_") })
	for i, value := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		env = append(env, []string{"GOPATH", "GOMODCACHE", "GOCACHE", "GOPROXY"}[i]+"="+value)
	}
	return append(env, "HOME="+d.home, "XDG_CACHE_HOME="+cache, "PIP_CACHE_DIR="+filepath.Join(cache, "pip"), "TMPDIR="+d.dir,
		// Its processes are known by it.
		"FAAS_INFER_GUIDE="+d.state)
}

// onPath puts a directory at the front of PATH.
func (d *desk) onPath(dir string) {
	d.reader.Env = append(d.reader.Env, "PATH="+dir+":"+os.Getenv("PATH"))
}

// guideSource is a repository of what the checkout of the tests holds, committed or
// not.
var guideSource = sync.OnceValues(func() (string, error) {
	source := filepath.Join(suite.dir, "source")
	list := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = ".."
	names, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("git ls-files: %w", err)
	}
	for name := range bytes.SplitSeq(bytes.TrimRight(names, "\x00"), []byte{0}) {
		if err := copyEntry(filepath.Join("..", string(name)), filepath.Join(source, string(name))); err != nil {
			return "", err
		}
	}
	for _, arguments := range [][]string{
		{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=tests", "-c", "user.email=tests@localhost", "commit", "-q", "-m", "what is tested"},
	} {
		c := exec.Command("git", append([]string{"-c", "safe.directory=*"}, arguments...)...)
		c.Dir = source
		if text, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("git %s: %w: %s", arguments[0], err, text)
		}
	}
	return source, nil
})

// copyEntry copies a file or a symbolic link. It ignores one that no longer exists.
func copyEntry(from, to string) error {
	info, err := os.Lstat(from)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}
