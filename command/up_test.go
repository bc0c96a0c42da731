package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/load"
)

const stackText = `version: 1.0
provider:
  name: openfaas
  gateway: http://127.0.0.1:8080
functions:
  second:
    lang: onnx-infer
    handler: ./second
    image: second:latest
    namespace: elsewhere
    limits: {cpu: 500m, memory: 128Mi}
    requests: {cpu: 100m}
    constraints: [node=a]
    secrets: [token]
    environment: {KEY: value}
    labels: {com.openfaas.slo.latency: 20ms}
  first:
    lang: onnx-infer
    handler: ./first
    image: first:latest
    annotations: {com.openfaas.slo.latency: 50ms}
`

func TestReadStack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stack.yml")
	write(t, file, stackText)
	functions, _, err := readStack(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(functions) != 2 {
		t.Fatalf("%d functions", len(functions))
	}
	first, second := functions[0], functions[1]
	if first.full() != "first.openfaas-fn" || first.Image != "first:latest" || first.slo() != 50*time.Millisecond {
		t.Errorf("first: %+v", first)
	}
	if second.full() != "second.elsewhere" || second.slo() != 20*time.Millisecond || second.Limits.CPU != "500m" ||
		second.Limits.Memory != "128Mi" || second.Requests.CPU != "100m" || second.Constraints[0] != "node=a" ||
		second.Secrets[0] != "token" || second.EnvVars["KEY"] != "value" {
		t.Errorf("second: %+v", second)
	}
	if (stackFunction{}).slo() != 0 {
		t.Error("a function without an objective has one")
	}
}

func TestReadStackFails(t *testing.T) {
	dir := t.TempDir()
	printed, err := os.Create(filepath.Join(dir, "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer func(stdout *os.File) { os.Stdout = stdout }(os.Stdout)
	os.Stdout = printed
	for name, c := range map[string]struct{ text, want string }{
		"empty.yml":  {"version: 1.0\nprovider:\n  name: openfaas\nfunctions: {}\n", "add one under functions"},
		"broken.yml": {"functions: [", "yaml"},
		"part.yml":   {"functions:\n  f:\n    image: f:v1\n", "it names no provider; add"},
	} {
		file := filepath.Join(dir, name)
		write(t, file, c.text)
		if _, _, err := readStack(file); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text, err := os.ReadFile(printed.Name()); err != nil || len(text) > 0 || printed.Close() != nil {
		t.Errorf("it prints %q %v", text, err)
	}
	if _, _, err := readStack(filepath.Join(dir, "absent.yml")); err == nil || !strings.Contains(err.Error(), "absent.yml") {
		t.Errorf("absent: %v", err)
	}
}

func TestRefusal(t *testing.T) {
	for text, want := range map[string]string{
		`unexpected status code: 400, message: "no bundle for \"x\"\n"`: `no bundle for "x"`,
		`unexpected status code: 502, message: ""`:                      `unexpected status code: 502, message: ""`,
		"cannot connect": "cannot connect",
	} {
		if got := refusal(errors.New(text)); got.Error() != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}

func TestBasicAuth(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	user, password, err := basicAuth(dir)
	if err != nil || user != "admin" || len(password) != 32 {
		t.Fatalf("%q, %q, %v", user, password, err)
	}
	for name, want := range map[string]fs.FileMode{"": 0o700, "basic-auth-user": 0o600, "basic-auth-password": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if again, same, err := basicAuth(dir); err != nil || again != user || same != password {
		t.Errorf("the second time: %q, %q, %v", again, same, err)
	}
	// What somebody else has put there counts, and what is absent is made.
	write(t, filepath.Join(dir, "basic-auth-password"), "chosen\n")
	if err := os.Remove(filepath.Join(dir, "basic-auth-user")); err != nil {
		t.Fatal(err)
	}
	if user, password, err := basicAuth(dir); err != nil || user != "admin" || password != "chosen" {
		t.Errorf("%q, %q, %v", user, password, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "basic-auth-user")); err != nil {
		t.Error(err)
	}
	if _, _, err := basicAuth(filepath.Join(dir, "basic-auth-user")); err == nil {
		t.Error("a file as directory is no error")
	}
}

// What up prints names the password's file and does not have the password.
func TestWelcome(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dir := t.TempDir()
	user, password, err := basicAuth(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := &upFlags{gateway: stockGateway}
	f.secrets = dir
	var out strings.Builder
	f.welcome(&out, &runningProvider{doors: []door{{listener: listener}}}, gatewayURL, nil, user)
	if login := "faas-cli login -g " + gatewayURL + " -u admin --password-stdin < " + passwordFile(dir) + "\n"; !strings.Contains(out.String(), login) {
		t.Errorf("up prints %q, without %q", &out, login)
	}
	if console := "Console    http://" + listener.Addr().String() + "/ui/\n"; !strings.Contains(out.String(), console) {
		t.Errorf("up prints %q, without %q", &out, console)
	}
	if strings.Contains(out.String(), password) {
		t.Errorf("up prints the password: %q", &out)
	}
}

// Only this user may read the gateway's log, also one that an earlier version has made.
func TestGatewayLogIsPrivate(t *testing.T) {
	used, fresh := t.TempDir(), t.TempDir()
	old := filepath.Join(used, "gateway.log")
	write(t, old, "what was logged")
	if err := os.Chmod(old, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{used, fresh} {
		log, err := newLog(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer log.file.Close()
		if info, err := os.Stat(filepath.Join(dir, "gateway.log")); err != nil || info.Mode().Perm() != 0o600 || info.Size() != 0 {
			t.Errorf("%s: %v, %d bytes, %v", dir, info.Mode(), info.Size(), err)
		}
	}
}

// The gateway's log has a bound, and what was logged last is there.
func TestGatewayLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	log, err := newLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	log.store.MaxBytes = 8 * rotateEach
	c := exec.Command("sh", "-c", "head -c 5000000 /dev/zero; echo end >&2")
	c.Stdout, c.Stderr = log, log
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if err := log.file.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1+gatewayLogFiles {
		t.Errorf("%q, %v", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() > log.store.MaxBytes || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	var text []byte
	for _, name := range []string{"gateway.log.1", "gateway.log"} {
		part, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	if !strings.HasSuffix(string(text), "end\n") {
		t.Errorf("the last line is not among %d bytes", len(text))
	}
}

func TestRates(t *testing.T) {
	f := &upFlags{rates: []float64{5}}
	for i := range 3 {
		if r, err := f.rate(i, 3); err != nil || r != 5 {
			t.Errorf("one for all: %v, %v", r, err)
		}
	}
	f.rates = []float64{1, 2, 3}
	if r, err := f.rate(1, 3); err != nil || r != 2 {
		t.Errorf("one for each: %v, %v", r, err)
	}
	if _, err := f.rate(0, 2); err == nil || !strings.Contains(err.Error(), "3 rates for 2 functions") {
		t.Errorf("three for two: %v", err)
	}
}

// It fails before anything is started.
func TestUpRefuses(t *testing.T) {
	stack := filepath.Join(t.TempDir(), "stack.yml")
	write(t, stack, stackText)
	for flags, want := range map[string]string{
		"--demo --rate 1,2,3": "--rate has 3 rates for 2 functions",
		"--gateway none":      `--gateway "none": it must be own or stock`,
	} {
		c := NewRootCommand()
		c.SetArgs(append(strings.Fields("up "+flags), "--stack", stack, "--state", t.TempDir()))
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", flags, err)
		}
	}
}

// The help of "up" says what it does, which differs from "provider".
func TestHelpOfSecrets(t *testing.T) {
	for name, want := range map[string]string{"up": "up makes", "provider": "without it"} {
		out, err := execute(t, name, "--help")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out) {
			flag, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if (flag == "--secret-mount-path" || flag == "--payload-secret") && !strings.Contains(line, want) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}

// The stock gateway takes the provider's usual port and needs one for asynchronous requests. Without it
// the provider opens one port only. The user's own values count.
func TestPortsOfUp(t *testing.T) {
	for arguments, want := range map[string][2]string{
		"":                {"127.0.0.1:8080", "off"},
		"--gateway stock": {"127.0.0.1:8081", "127.0.0.1:4222"},
		"--gateway stock --listen :9000 --nats-listen off": {":9000", "off"},
	} {
		f, flags := &upFlags{}, pflag.NewFlagSet("up", pflag.ContinueOnError)
		f.registerUp(flags)
		if err := flags.Parse(append(strings.Fields(arguments), "--stack", "", "--state", t.TempDir())); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := f.ready(); err != nil {
			t.Fatal(err)
		}
		if got := [2]string{f.listen, f.nats.listen}; got != want || f.behindGateway != (f.gateway == stockGateway) {
			t.Errorf("up %s listens at %q, behind a gateway %v, want %q", arguments, got, f.behindGateway, want)
		}
	}
}

func TestConfigs(t *testing.T) {
	if got := configs(nil); got != "none" {
		t.Errorf("of nothing: %q", got)
	}
	instance := func(batch, cpu int) cluster.Instance {
		return cluster.Instance{InstanceSpec: cluster.InstanceSpec{Config: cluster.Config{Batch: batch, Resources: cluster.Resources{CPU: cpu}}}}
	}
	got := configs([]cluster.Instance{instance(8, 1000), instance(4, 500), instance(8, 1000)})
	if want := "1 × ⟨4,500m,0%⟩, 2 × ⟨8,1000m,0%⟩"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func demoRows() []demoRow {
	row := demoRow{counts: counts{batches: 10, batched: 25, coldStarts: 3}.sub(counts{batches: 5, batched: 5, coldStarts: 1}), instances: "1 × ⟨8,1000m,0%⟩"}
	row.TargetResult = load.TargetResult{Name: "mnist"}
	return []demoRow{row}
}

func TestDemoTable(t *testing.T) {
	var out bytes.Buffer
	if err := demoTable(&out, demoRows()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.HasPrefix(lines[0], "function") || !strings.HasPrefix(lines[1], "mnist") || !strings.Contains(lines[1], "4.00") || !strings.Contains(lines[1], "⟨8,1000m,0%⟩") {
		t.Errorf("table:\n%s", out.String())
	}
	if got := (counts{}).meanBatch(); got != 0 {
		t.Errorf("mean batch of none: %v", got)
	}
}

func TestDemoJSON(t *testing.T) {
	var out bytes.Buffer
	if err := demoReport(demoRows()).JSON(&out); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(out.Bytes()) || !strings.Contains(out.String(), "mnist.mean_batch") {
		t.Errorf("JSON: %s", out.String())
	}
}

func TestInstanceCommand(t *testing.T) {
	t.Setenv("FAAS_INFER_ONNXRUNTIME", "/lib/ort.so")
	t.Setenv("XDG_CACHE_HOME", "")
	spec := cluster.InstanceSpec{Function: "mnist.openfaas-fn", Artefact: cluster.Artefact{Bundle: "/bundles/x", Model: "/prepared/x"},
		Config: cluster.Config{Batch: 8, Resources: cluster.Resources{CPU: 1500, Memory: 1 << 28}}}
	argv, env := (&ProviderFlags{maxBody: 1 << 26}).instanceCommand(spec, "/run/s")
	got := strings.Join(argv[1:], " ")
	for _, want := range []string{"instance", "--prepared /prepared/x", "--bundle /bundles/x", "--name mnist ", "--threads 2", "--max-batch 8", "--memory 268435456", "--body-limit 67108864", "--listen unix:///run/s"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if len(env) != 1 || env[0] != "FAAS_INFER_ONNXRUNTIME=/lib/ort.so" {
		t.Errorf("environment %q", env)
	}
	shadow := spec
	shadow.Role, shadow.Part = cluster.Shadow, "0:3"
	if argv, _ := (&ProviderFlags{state: "/state"}).instanceCommand(shadow, "/run/s"); !strings.Contains(strings.Join(argv, " "), "instance shadow --shadow 0:3 --relay unix:///run/s.relay ") || !strings.Contains(strings.Join(argv, " "), "--standby /state/standby") {
		t.Errorf("a shadow is started as %q, and not from the empty instance", argv)
	}
	// The instance's own flags take it.
	c, _, err := NewRootCommand().Find(argv[1:])
	if err != nil || c.ParseFlags(argv[2:]) != nil {
		t.Errorf("%q is refused: %v", got, err)
	}
}
