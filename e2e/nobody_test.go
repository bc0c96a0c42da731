package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

// Everything works without privileges: as the user nobody if the tests run as root,
// otherwise as the tests' user. The provider says once what it cannot do.
func TestWithoutPrivileges(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.asNobody(t)
	d := p.run(t, suite.binary, "up", "--demo", "--json", "--duration", "3s", "--rate", "60",
		"--listen", "127.0.0.1:0", "--stack", filepath.Join("testdata", "stack.yml"))
	d.await(t, patience, "instances", func() bool { return len(p.instances()) > 0 })
	for _, pid := range p.instances() {
		text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
		if strings.Contains(string(text), "faas-infer-") {
			t.Errorf("instance %d is in a cgroup that nobody may make", pid)
		}
	}
	if code := d.exit(t, patience); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, d.tail())
	}
	d.nothingLeft(t)
	d.saysOnceWhatIsLacking(t)
	var report struct {
		Results []struct {
			Name  string
			Value float64
		}
	}
	if err := json.Unmarshal([]byte(d.output()), &report); err != nil {
		t.Fatalf("%v: %s", err, d.output())
	}
	values := map[string]float64{}
	for _, r := range report.Results {
		values[r.Name] = r.Value
	}
	for _, name := range []string{"identity", "mnist"} {
		sent, good := values[name+".requests.sent"], values[name+".requests.good"]
		t.Logf("%s: %v of %v requests were answered, p99 %.1f ms", name, good, sent, values[name+".latency.p99_ms"])
		if sent == 0 || good != sent {
			t.Errorf("%s: %v of %v requests were answered", name, good, sent)
		}
	}
}

// Ordinary functions work without privileges too: both kinds of programs, with secrets, and
// across a restart. The provider says what they lack.
func TestOrdinaryWithoutPrivileges(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.asNobody(t)
	d := p.provider(t, suite.binary)
	c := client(t)
	if a := do(t, c, http.MethodPost, d.url+"/system/secrets", []byte(`{"name":"token","value":"quiet"}`)); a.status != http.StatusAccepted {
		t.Fatalf("secret: %d %s", a.status, a.body)
	}
	reader := ordinary("reader", `sh -c 'cat "$FAAS_INFER_SECRETS_DIR/token"; id -u'`)
	reader.Secrets = []string{"token"}
	redirector := types.FunctionDeployment{Service: "redirector", Namespace: defaultNamespace, Image: "theaxer/redirector:latest"}
	for _, f := range []types.FunctionDeployment{reader, redirector, ordinary("cat", "cat")} {
		d.deploy(t, f)
		d.awaitReady(t, f.Service, 1)
	}
	user := os.Getuid()
	if p.user != nil {
		user = int(p.user.Uid)
	}
	check := func() {
		t.Helper()
		if a := do(t, c, http.MethodPost, d.function("reader"), nil); a.body != fmt.Sprintf("quiet%d\n", user) {
			t.Errorf("the reader answers %d %q", a.status, a.body)
		}
		if a := do(t, c, http.MethodPost, d.function("cat"), []byte("x")); a.body != "x" {
			t.Errorf("cat answers %d %q", a.status, a.body)
		}
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		if a := do(t, c, http.MethodGet, d.function("redirector"), nil); a.status != http.StatusFound {
			t.Errorf("the redirector answers %d %q", a.status, a.body)
		}
	}
	check()
	before := p.instances()
	d.kill(t)
	d = p.provider(t, suite.binary)
	for _, name := range []string{"reader", "redirector", "cat"} {
		d.awaitReady(t, name, 1)
	}
	check()
	if now := p.instances(); !slices.Equal(now, before) {
		t.Errorf("instances %v after the restart, %v before", now, before)
	}
	if !d.lacks("") {
		t.Error("it does not say what it lacks")
	}
	d.stop(t)
}

// asNobody gives the place to the user nobody if the tests run as root. The place gets its
// own cache with ONNX Runtime.
func (p *place) asNobody(t *testing.T) {
	t.Helper()
	cache := filepath.Join(p.dir, "cache")
	p.extra = []string{"HOME=" + p.dir, "XDG_CACHE_HOME=" + cache, "XDG_STATE_HOME=" + filepath.Join(p.dir, "home")}
	library := filepath.Join(p.dir, "libonnxruntime.so")
	copyFile(t, suite.library, library)
	p.extra = append(p.extra, "FAAS_INFER_ONNXRUNTIME="+library)
	if os.Getuid() != 0 {
		return
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	p.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	err = filepath.WalkDir(p.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, uid, gid)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// saysOnceWhatIsLacking checks that the log has one line about cgroups.
func (d *daemon) saysOnceWhatIsLacking(t *testing.T) {
	t.Helper()
	said := 0
	for _, line := range d.lines() {
		if line["message"] != "instances are not fully isolated" {
			continue
		}
		said++
		text, _ := json.Marshal(line["lacking"])
		wantWords(t, string(text), "cgroup", "only the number of threads is limited")
	}
	if said != 1 {
		t.Errorf("what is lacking was said %d times", said)
	}
}
