package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openfaas/faas-provider/types"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// wayOut is the interface that leads out of a network of the bench's own, to nobody.
const wayOut = "out"

// watchNetwork gives this network a way out and a resolver on it, and starts the provider and all
// instances again. Nobody reads from the interface; the kernel counts what is sent.
func watchNetwork(ctx context.Context, t *trial) error {
	if _, err := exec.LookPath("ip"); !t.world.alone || err != nil {
		return fmt.Errorf("%w: it takes root, a network namespace and the program ip", errNotHere)
	}
	resolver := filepath.Join(t.world.dir, "resolv.conf")
	if err := os.WriteFile(resolver, []byte("nameserver 10.9.8.53\noptions timeout:1 attempts:1\n"), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(resolver, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%w: replace the resolver: %w", errNotHere, err)
	}
	t.restored(func(context.Context) error { return unix.Unmount("/etc/resolv.conf", unix.MNT_DETACH) })
	// With IPv6 the kernel itself sends. A kernel without it has no such file.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0)
	for _, arguments := range []string{"tuntap add out mode tun", "address add 10.9.8.1/24 dev out", "link set out up", "route add default dev out"} {
		if said, err := exec.CommandContext(ctx, "ip", strings.Fields(arguments)...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: ip %s: %w: %s", errNotHere, arguments, err, said)
		}
		if strings.HasPrefix(arguments, "tuntap") {
			t.restored(func(ctx context.Context) error { return exec.CommandContext(ctx, "ip", "link", "delete", wayOut).Run() })
		}
	}
	_ = exec.CommandContext(ctx, "getent", "hosts", "faas-infer.example").Run() // It finds nobody.
	if n, err := packets(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("%w: a lookup sends no packet, so nothing would be seen", errNotHere), err)
	}
	if err := t.world.restart(ctx, t.world.place); err != nil {
		return err
	}
	return t.world.awaitWell(ctx, t.functions, t.SLO, wellWithin)
}

// packets is how many have been sent on the way out.
func packets() (n int, err error) {
	text, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return 0, err
	}
	return packetsIn(string(text))
}

// packetsIn reads that from the kernel's table of interfaces.
func packetsIn(table string) (n int, err error) {
	for line := range strings.Lines(table) {
		name, figures, _ := strings.Cut(line, ":")
		if fields := strings.Fields(figures); strings.TrimSpace(name) == wayOut && len(fields) > 11 {
			for _, field := range []string{fields[9], fields[11]} { // Sent, and dropped since nobody reads.
				more, err := strconv.Atoi(field)
				if err != nil {
					return 0, fmt.Errorf("/proc/net/dev: %w", err)
				}
				n += more
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("there is no interface %s", wayOut)
}

// telemetry has a model measured that is new, beside the instances that were started for this.
func telemetry(ctx context.Context, t *trial) error {
	before, err := packets()
	if err != nil {
		return err
	}
	end := time.Now().Add(t.fault.lasts)
	if _, err := t.newModel(ctx, "reported"); err != nil {
		return err
	}
	if err := rig.Pause(ctx, time.Until(end)); err != nil {
		return err
	}
	after, err := packets()
	t.must(after == before, "%d packets left the machine", after-before)
	return err
}

// newModel deploys a model that the provider has not seen. It is a guest.
func (t *trial) newModel(ctx context.Context, name string) (*function, error) {
	m, err := zoo.Make(zooModel, 1000*t.Seed+uint64(t.run))
	if err != nil {
		return nil, err
	}
	s := &rig.Subject{Name: name, Model: m}
	image := fmt.Sprintf("%s:run%d", name, t.run)
	if err := t.world.now().Bundle(s, image); err != nil {
		return nil, err
	}
	f, err := new(digits).function(s, t.Seed)
	if err != nil {
		return nil, err
	}
	f.name = name
	f.deployment = rig.Function(name, image, map[string]string{"com.openfaas.slo.latency": t.SLO.String()})
	return f, t.guest(ctx, f)
}

// endless is a graph with a loop of 2^62 trips, vast one that takes 8 GiB for a row.
const (
	endless = `node { op_type: "Loop" input: "trips" input: "" input: "x" output: "y" attribute { name: "body" type: GRAPH g {
  name: "body"
  node { op_type: "Identity" input: "go" output: "on" }
  node { op_type: "Sin" input: "v" output: "w" }
  input { name: "i" type { tensor_type { elem_type: 7 shape {} } } }
  input { name: "go" type { tensor_type { elem_type: 9 shape {} } } }
  input { name: "v" ` + row + `}
  output { name: "on" type { tensor_type { elem_type: 9 shape {} } } }
  output { name: "w" ` + row + `}
} } }
initializer { name: "trips" data_type: 7 int64_data: 4611686018427387904 }`
	vast = `node { op_type: "Expand" input: "x" input: "shape" output: "wide" }
node { op_type: "Sin" input: "wide" output: "sin" }
node { op_type: "ReduceMax" input: "sin" output: "y" attribute { name: "axes" type: INTS ints: 1 } }
initializer { name: "shape" data_type: 7 dims: 2 int64_data: 1 int64_data: 2147483648 }`
	// same gives back what it gets.
	same = `node { op_type: "Identity" input: "x" output: "y" }`
	// row is the declaration of a tensor of one number in each row.
	row = `type { tensor_type { elem_type: 1 shape { dim { dim_param: "n" } dim { dim_value: 1 } } } } `
)

// graphOf is a model of nodes in protobuf's text, from x to y.
func graphOf(nodes string) (*onnxpb.ModelProto, error) {
	p := new(onnxpb.ModelProto)
	err := prototext.Unmarshal([]byte(`ir_version: 8 opset_import { version: 17 } graph { name: "hostile" `+nodes+
		` input { name: "x" `+row+`} output { name: "y" `+row+`} }`), p)
	return p, err
}

// weightsFile is beside every hostile model.
const weightsFile = "w.bin"

// hostile gives the provider a model's file as an image.
func (t *trial) hostile(name string, file []byte) (image string, err error) {
	image = name + ":latest"
	_, err = bundle.WriteFiles(filepath.Join(t.world.now().State, "bundles"), image, bundle.Manifest{Engine: bundle.EngineONNX, Model: "model.onnx"},
		func(dir string) error {
			weights := os.WriteFile(filepath.Join(dir, weightsFile), make([]byte, 4), 0o644)
			return errors.Join(weights, os.WriteFile(filepath.Join(dir, "model.onnx"), file, 0o644))
		})
	return image, err
}

// refused deploys a model that cannot serve, and returns what the provider says to that or later
// about the function: its problem or, if none is known when ctx ends, how far finding out has come.
func (t *trial) refused(ctx context.Context, name, image string) (said string) {
	f := &function{name: name, deployment: rig.Function(name, image, map[string]string{"com.openfaas.slo.latency": t.SLO.String()})}
	if err := t.guest(ctx, f); err != nil {
		if ctx.Err() != nil {
			t.say("the deployment of %s has no answer yet", name)
			return ""
		}
		return err.Error()
	}
	for rig.Pause(ctx, 100*time.Millisecond) == nil {
		s, err := t.world.now().Status(ctx, name)
		if err != nil || s.Annotations == nil {
			continue
		}
		if problem := (*s.Annotations)["com.openfaas.infer.problem"]; problem != "" {
			return problem
		}
		said = (*s.Annotations)["com.openfaas.infer.progress"]
	}
	return said
}

// endlessModel deploys one beside a model that is fine.
func endlessModel(ctx context.Context, t *trial) error {
	p, err := graphOf(endless)
	if err != nil {
		return err
	}
	file, err := proto.Marshal(p)
	if err != nil {
		return err
	}
	image, err := t.hostile("endless", file)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.fault.lasts)
	defer cancel()
	began := time.Now()
	said := make(chan string, 1)
	go func() { said <- t.refused(ctx, "endless", image) }()
	defer func() {
		why := <-said
		t.must(why != "", "nothing was said of the model that never ends within %v", t.fault.lasts)
		t.say("of the model that never ends after %v: %.160s", time.Since(began).Round(100*time.Millisecond), why)
	}()
	if err := rig.Pause(ctx, 200*time.Millisecond); err != nil {
		return err
	}
	good, err := t.newModel(ctx, "good")
	if err == nil {
		_, err = t.world.answerOf(good, t.fault.lasts)(ctx, good.body(0))
	}
	t.must(err == nil, "a good model does not answer within %v: %v", t.fault.lasts, err)
	t.say("the good model answers after %v", time.Since(began).Round(100*time.Millisecond))
	return nil
}

// manyNodes is a file of 20 MB of four million operators of five bytes each, whose weights are in
// another file, so that all of it must be walked through.
func manyNodes() ([]byte, error) {
	p, err := graphOf(same + ` initializer { name: "w" data_type: 1 dims: 1 data_location: EXTERNAL external_data { key: "location" value: "` + weightsFile + `" } }`)
	if err != nil {
		return nil, err
	}
	return withGraph(p, func(graph []byte) []byte {
		operator := protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), []byte("A"))
		for range 4_000_000 {
			graph = protowire.AppendBytes(protowire.AppendTag(graph, 1, protowire.BytesType), operator)
		}
		return graph
	})
}

// manyWarnings is a file of some 2 MB with weights that nobody uses: ONNX Runtime warns of each.
func manyWarnings() ([]byte, error) {
	p, err := graphOf(same)
	if err != nil {
		return nil, err
	}
	return withGraph(p, func(graph []byte) []byte {
		for i := range 100_000 {
			weight, _ := proto.Marshal(&onnxpb.TensorProto{ // Its fields are valid.
				Name: proto.String(fmt.Sprint("w", i)), DataType: proto.Int32(1), Dims: []int64{1}, RawData: make([]byte, 4),
			})
			graph = protowire.AppendBytes(protowire.AppendTag(graph, 5, protowire.BytesType), weight)
		}
		return graph
	})
}

// withGraph is a model's file with more in its graph.
func withGraph(p *onnxpb.ModelProto, more func(graph []byte) []byte) ([]byte, error) {
	graph, err := proto.Marshal(p.Graph)
	if err != nil {
		return nil, err
	}
	p.Graph = nil
	file, err := proto.Marshal(p)
	return protowire.AppendBytes(protowire.AppendTag(file, 7, protowire.BytesType), more(graph)), err
}

// parserMiB is by how much the provider's memory may grow while it is given hostile models.
const parserMiB = 128

// hostileModels deploys files that are made to make their reader large.
func hostileModels(ctx context.Context, t *trial) error {
	wide, err := graphOf(vast)
	if err != nil {
		return err
	}
	before := residentMiB(t.world.now().Process.Pid)
	most := t.world.watchMemory(ctx)
	within, cancel := context.WithTimeout(ctx, t.fault.lasts)
	defer cancel()
	var all sync.WaitGroup
	for name, file := range map[string]func() ([]byte, error){
		"vast": func() ([]byte, error) { return proto.Marshal(wide) }, "nodes": manyNodes, "warnings": manyWarnings,
	} {
		text, err := file()
		if err != nil {
			return err
		}
		image, err := t.hostile(name, text)
		if err != nil {
			return err
		}
		all.Go(func() {
			began := time.Now()
			why := t.refused(within, name, image)
			// The last is a model that serves, but for its warnings.
			t.must(why != "" || name == "warnings", "nothing is said of %s within %v", name, t.fault.lasts)
			t.say("of %s after %v: %.160s", name, time.Since(began).Round(100*time.Millisecond), why)
		})
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	t.exceed("the provider grew", max(0, most()-before), parserMiB)
	return nil
}

// postman deploys a function that answers with what it is sent, and one that runs it.
func postman(ctx context.Context, t *trial) error {
	const name = "runs"
	f := &function{name: name, deployment: types.FunctionDeployment{Service: name, Image: "functions/alpine:latest", EnvProcess: "sh"}}
	if err := t.guest(ctx, f); err != nil {
		return err
	}
	if err := t.world.now().Available(ctx, name, 1); err != nil {
		return err
	}
	return t.program(ctx, "postman", "cat")
}

// callbacksHome has deployments posted to the provider as functions' answers, also by way of a
// redirect, and has a function post one itself.
func callbacksHome(ctx context.Context, t *trial) error {
	home := t.world.now().URL
	redirects := httptest.NewServer(http.RedirectHandler(home+"/system/functions", http.StatusTemporaryRedirect))
	defer redirects.Close()
	deployment := func(name string) string {
		text, _ := json.Marshal(types.FunctionDeployment{Service: name, Image: "functions/alpine:latest", EnvProcess: "cat"})
		return string(text)
	}
	port := home[strings.LastIndex(home, ":"):]
	taken := []string{"taken-call"}
	for i, to := range []string{home + "/system/functions", "http://localhost" + port + "/system/functions", home + "/function/../system/functions", redirects.URL} {
		taken = append(taken, fmt.Sprint("taken-", i))
		status, _, err := post(ctx, http.DefaultClient, home+"/async-function/"+t.own.name, http.Header{"X-Callback-Url": {to}}, []byte(deployment(taken[i+1])))
		if err != nil || status/100 == 5 {
			return errors.Join(fmt.Errorf("a callback to %s is answered %d", to, status), err)
		}
	}
	if curl, err := exec.LookPath("curl"); err == nil && t.world.alone {
		script := fmt.Sprintf("%s -sS -X POST %s/system/functions -d '%s' 2>&1", curl, home, deployment(taken[0]))
		_, said, err := post(ctx, http.DefaultClient, home+"/function/runs", nil, []byte(script))
		t.say("a function that deploys is told: %.100s", printable(said))
		if err != nil {
			return err
		}
	} else {
		t.say("no function has deployed: that takes root and the program curl")
	}
	if err := rig.Pause(ctx, t.fault.lasts); err != nil {
		return err
	}
	for _, name := range taken {
		if s, err := t.world.now().Status(ctx, name); err == nil {
			t.must(false, "%s was deployed: %s", name, s.Name)
			t.restored(func(ctx context.Context) error { return t.world.now().Remove(ctx, name) })
		}
	}
	return nil
}
