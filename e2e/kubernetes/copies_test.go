package kubernetes_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// copiedModel returns the model of the test: one of the zoo's, by default one with 98 MiB of weights.
func copiedModel() string { return cmp.Or(os.Getenv("FAAS_INFER_E2E_MODEL"), "resnet-50") }

// keyOfAgents is what senders of models show to the agents, and secretOfAgents has it.
const (
	keyOfAgents    = "only-the-provider-knows"
	secretOfAgents = `apiVersion: v1
kind: Secret
metadata: {name: faas-infer-copies, namespace: faas-infer-copies}
stringData: {key: ` + keyOfAgents + `}
---
`
)

// foreignClaim is a claim in another namespace to the volume of the functions' copies.
const foreignClaim = `apiVersion: v1
kind: Namespace
metadata: {name: stranger}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: faas-infer-copies, namespace: stranger}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: faas-infer-copies-openfaas-fn
  resources: {requests: {storage: 1Gi}}
`

// instanceOf is the process of a model's pod on the node.
type instanceOf struct {
	pid int
	// file is the device and inode of the prepared weights that it has mapped, "" for none. private is its
	// own memory in MiB.
	file    string
	private float64
	// log is the pod's. StartMS and LoadMS are from its line "ready": since the process's start, and for
	// the model.
	log             string
	StartMS, LoadMS float64
	// waited is the time from the request for the pod until it was ready.
	waited time.Duration
}

// Pods of one function on a node map one prepared copy of its model, within Pod Security's "restricted".
// The copy is out of reach of another function and of another namespace, and goes after the function.
func TestCopies(t *testing.T) {
	f := shared(t)
	root := f.shareCopies(t, copiedModel(), "functions/copied:latest", 10*time.Second)
	f.kubectl(t, foreignClaim, "apply", "-f", "-")
	var plain, copied []instanceOf
	t.Run("without", func(t *testing.T) {
		f.provider(t, "without")
		plain = f.twoInstances(t, "plain")
	})
	t.Run("with", func(t *testing.T) {
		f.provider(t, "with", "--lease", "with", "--copies", "openfaas-fn")
		copied = f.twoInstances(t, "copied", func() {
			found, err := filepath.Glob(filepath.Join(root, "openfaas-fn", "copied-*"))
			if err != nil || len(found) != 1 {
				t.Fatalf("the node has the copies %v, %v", found, err)
			}
		})
	})
	if t.Failed() {
		return
	}
	if file := copied[0].file; file == "" || copied[1].file != file || plain[1].file != "" {
		t.Errorf("the pods have mapped %q and %q; without copies %q", file, copied[1].file, plain[1].file)
	}
	if copied[1].private > plain[1].private/2 {
		t.Errorf("the second pod has %.0f MiB of its own, and %.0f MiB without copies", copied[1].private, plain[1].private)
	}
	for i, in := range copied {
		if made := strings.Contains(in.log, "prepared the model for all instances"); made != (i == 0) {
			t.Errorf("pod %d says %s", i, in.log)
		}
	}
	await(t, "the copies to go", func() error {
		left, err := filepath.Glob(filepath.Join(root, "openfaas-fn", "*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are %v", left)
		}
		return err
	})
	if phase := f.kubectl(t, "", "-n", "stranger", "get", "pvc/faas-infer-copies", "-o", "jsonpath={.status.phase}"); phase == "Bound" {
		t.Error("another namespace's claim has the volume")
	}
	if info, err := os.Stat(root); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("users of the node get to the copies: %v, %v", info.Mode(), err)
	}
}

// shareCopies pushes an image with a model of the zoo, and installs the option copies, whose agent looks every
// second and keeps what is unused for a while. It returns the node's directory of copies.
func (f *fixture) shareCopies(t *testing.T, zoo, image string, unused time.Duration) (root string) {
	t.Helper()
	f.image(t, "provider", "--base", filepath.Join(f.programs, "base.tar"), "--push", f.RegistryHost()+"/faas-infer/provider:latest")
	model := filepath.Join(t.TempDir(), "model.onnx")
	if _, err := run(f.program("faas-infer"), "model", "make", zoo, "--out", model); err != nil {
		t.Fatal(err)
	}
	f.image(t, "function", model, "--base", f.base, "--push", f.RegistryHost()+"/"+image)
	root = filepath.Join(f.Dir(), "copies")
	text, err := os.ReadFile("../../yaml/options/copies/copies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f.kubectl(t, strings.NewReplacer("/var/lib/faas-infer/copies", root, "image: faas-infer/provider", "image: "+f.RegistryHost()+"/faas-infer/provider:latest",
		"apiVersion: apps/v1\n", secretOfAgents+"apiVersion: apps/v1\n", "--size=20Gi", "--size=20Gi, --every=1s, --keep-free=1, --unused="+unused.String()).Replace(string(text)), "apply", "-f", "-")
	f.kubectl(t, "", "-n", "faas-infer-copies", "rollout", "status", "daemonset/faas-infer-copies", "--timeout=2m")
	return root
}

// twoInstances deploys the model with one instance and then with two, and deletes it. between is called
// while there are two.
func (f *fixture) twoInstances(t *testing.T, name string, between ...func()) (all []instanceOf) {
	t.Helper()
	function := func(instances int) string {
		return fmt.Sprintf(`apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: %s, namespace: openfaas-fn}
spec:
  image: functions/copied:latest
  readOnlyRootFilesystem: true
  requests: {cpu: 500m}
  limits: {cpu: 500m}
  annotations: {com.openfaas.slo.latency: 20s, com.openfaas.infer.max-batch: "2"}
  labels: {com.openfaas.scale.min: "%d"}
`, name, instances)
	}
	for n := 1; n <= 2; n++ {
		began := time.Now()
		f.kubectl(t, function(n), "apply", "-f", "-")
		var in instanceOf
		await(t, fmt.Sprintf("instance %d of %s", n, name), func() (err error) {
			in, err = f.newInstance(t, name, all)
			return err
		})
		in.waited = time.Since(began)
		if err := in.read(); err != nil {
			t.Fatal(err)
		}
		t.Logf("instance %d of %s: start %.0f ms, of which the model %.0f ms; %.0f MiB of its own; ready %v after it was asked for",
			n, name, in.StartMS, in.LoadMS, in.private, in.waited.Round(10*time.Millisecond))
		all = append(all, in)
	}
	// The first one's pages are shared now.
	if err := all[0].read(); err != nil {
		t.Fatal(err)
	}
	t.Logf("instance 1 of %s has %.0f MiB of its own beside the second", name, all[0].private)
	for _, check := range between {
		check()
	}
	f.kubectl(t, "", "-n", "openfaas-fn", "delete", "function", name)
	return all
}

// newInstance finds an instance that is ready and is none of those known.
func (f *fixture) newInstance(t *testing.T, name string, known []instanceOf) (in instanceOf, err error) {
	for _, line := range strings.Split(f.kubectl(t, "", "-n", "openfaas-fn", "get", "pods", "-l", "faas_function="+name, "-o",
		`jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}`), "\n") {
		if line == "" {
			continue
		}
		log, err := f.Kubectl(t.Context(), "", "-n", "openfaas-fn", "logs", line)
		if err != nil || !strings.Contains(log, `"message":"ready"`) || slices.ContainsFunc(known, func(k instanceOf) bool { return k.log == log }) {
			continue
		}
		in.log = log
	}
	if in.log == "" {
		return in, errors.New("none is ready")
	}
	for line := range strings.Lines(in.log) {
		var said struct {
			Message string  `json:"message"`
			Start   float64 `json:"start_ms"`
			Load    float64 `json:"load_ms"`
		}
		if json.Unmarshal([]byte(line), &said) == nil && said.Message == "ready" {
			in.StartMS, in.LoadMS = said.Start, said.Load
		}
	}
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		text, gone := os.ReadFile(file)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if gone == nil && bytes.Contains(text, []byte("\x00instance\x00--")) && bytes.Contains(text, []byte("\x00--name\x00"+name)) &&
			!slices.ContainsFunc(known, func(k instanceOf) bool { return k.pid == pid }) {
			in.pid = pid
		}
	}
	if err == nil && in.pid == 0 {
		err = errors.New("its process is not there")
	}
	return in, err
}

// read reads what the process has in memory, and checks that it sees its own function's copies only.
func (in *instanceOf) read() error {
	dir := filepath.Join("/proc", strconv.Itoa(in.pid))
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); len(fields) == 6 && filepath.Base(fields[5]) == "weights.bin" {
			in.file = fields[3] + " " + fields[4]
		}
	}
	rollup, err := os.ReadFile(filepath.Join(dir, "smaps_rollup"))
	if err != nil {
		return err
	}
	in.private = 0
	for line := range strings.Lines(string(rollup)) {
		if fields := strings.Fields(line); len(fields) == 3 && strings.HasPrefix(fields[0], "Private_") {
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				return err
			}
			in.private += kib / 1024
		}
	}
	seen, err := os.ReadDir(filepath.Join(dir, "root/var/lib/faas-infer/copies"))
	if errors.Is(err, fs.ErrNotExist) && in.file == "" {
		return nil
	}
	if err == nil && (len(seen) != 2 || seen[0].Name() != ".making") {
		err = fmt.Errorf("an instance sees %v", seen)
	}
	return err
}
