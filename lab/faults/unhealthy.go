package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/openfaas/faas-provider/types"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// noticed is how long the provider may take until it sends an unhealthy instance nothing more, and
// wellPart which part of the requests to its function must be answered well from then on.
const (
	noticed  = 5 * time.Second
	wellPart = 0.95
)

// keepsWell sends the fault's own function requests until the fault is over, and looks at those that
// came after the time in which the instance must have been noticed.
func (t *trial) keepsWell(ctx context.Context, rate float64, slo time.Duration) error {
	id, err := t.burst(ctx, t.world.now().URL, t.own, rate, t.fault.lasts, slo, slo+beyond)
	if err != nil {
		return err
	}
	for from, until := range map[time.Duration]time.Duration{0: noticed, noticed: t.fault.lasts} {
		s := t.recorder.answered(id, from, until)
		t.say("from %v to %v %d of %d requests are answered well", from, until, s.within, s.all)
		t.must(from == 0 || s.percent() >= 100*wellPart, "at least %v %% must be", 100*wellPart)
	}
	return nil
}

// instancesOf are those of the fault's own function.
func (t *trial) instancesOf() (its []rig.InstanceRecord, err error) {
	records, err := t.world.records()
	for _, r := range records {
		if strings.HasPrefix(r.Spec.Function, t.own.name+".") {
			its = append(its, r)
		}
	}
	return its, err
}

// badMark is a file in whose instance the program fails.
const badMark = "/tmp/bad"

// echoes deploys two instances of a program that gives back what it is sent.
func echoes(ctx context.Context, t *trial) error {
	if !t.world.alone {
		return fmt.Errorf("%w: only root has instances with a /tmp of their own", errNotHere)
	}
	const name = "echoes"
	f := *t.functions[len(t.functions)-1]
	f.name = name
	f.deployment = types.FunctionDeployment{
		Service: name, Image: "functions/alpine:latest", EnvProcess: `sh -c "if [ -e ` + badMark + ` ]; then exit 1; fi; exec cat"`,
		Labels: &map[string]string{"com.openfaas.scale.min": "2", "com.openfaas.scale.max": "2"},
	}
	t.own = &f
	if err := t.guest(ctx, &f); err != nil {
		return err
	}
	return t.world.now().Available(ctx, name, 2)
}

func programFails(ctx context.Context, t *trial) error {
	its, err := t.instancesOf()
	if err != nil || len(its) == 0 {
		return errors.Join(errors.New("there is no instance"), err)
	}
	all, err := processes()
	if err != nil {
		return err
	}
	const namespace = "/proc/%d/ns/mnt"
	mine, err := os.Readlink(fmt.Sprintf(namespace, os.Getpid()))
	if err != nil {
		return err
	}
	marked := 0
	for _, pid := range append(descendants(all, its[0].Process.PID), its[0].Process.PID) {
		// Processes of an instance may be outside of what the program sees, or have ended.
		theirs, err := os.Readlink(fmt.Sprintf(namespace, pid))
		if err == nil && theirs != mine && os.WriteFile(fmt.Sprintf("/proc/%d/root%s", pid, badMark), nil, 0o644) == nil {
			marked++
		}
	}
	if marked == 0 {
		return fmt.Errorf("%w: the instance's /tmp cannot be written", errNotHere)
	}
	return t.keepsWell(ctx, 40, t.SLO)
}

// failingProgram fails at once in the process whose token is in a file. It answers with its token to a
// number below 0.
const failingProgram = `import os

import numpy as np

inputs = {"x": ("float64", [1])}
outputs = {"y": ("float64", [1])}
token = float(int.from_bytes(os.urandom(6), "big"))


def handle(batch):
    if os.path.exists(%[1]q) and float(open(%[1]q).read()) == token:
        raise RuntimeError("this instance fails")
    return [{"y": np.where(request["x"] < 0, token, request["x"] + 1)} for request in batch]
`

// ownAdder deploys a handler of the fault's own that adds one, and waits for an answer.
func (t *trial) ownAdder(ctx context.Context, name, program string, labels map[string]string) error {
	if err := pythonBundle(t.world.now(), t.world.dir, name, program); err != nil {
		return err
	}
	f := adder()
	f.name = name
	f.deployment = rig.Function(name, name+":latest", map[string]string{"com.openfaas.slo.latency": t.SLO.String()})
	f.deployment.Labels = &labels
	t.own = f
	if err := t.guest(ctx, f); err != nil {
		return err
	}
	_, err := t.world.answerOf(f, wellWithin)(ctx, f.body(0))
	return err
}

// badFile says which process fails.
func (t *trial) badFile() string { return filepath.Join(t.world.dir, "failing") }

// failingModel deploys two instances of a handler.
func failingModel(ctx context.Context, t *trial) error {
	const name = "failing"
	t.restored(func(context.Context) error {
		if err := os.Remove(t.badFile()); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
	if err := t.ownAdder(ctx, name, fmt.Sprintf(failingProgram, t.badFile()), map[string]string{"com.openfaas.scale.min": "2"}); err != nil {
		return err
	}
	return t.world.now().Available(ctx, name, 2)
}

func modelFails(ctx context.Context, t *trial) error {
	answer, err := t.world.answerOf(t.own, wellWithin)(ctx, t.own.body(-1))
	if err != nil {
		return err
	}
	token := tensors(answer)
	if len(token) != 8 {
		return fmt.Errorf("an instance says %q instead of who it is", printable(answer))
	}
	text := strconv.FormatFloat(math.Float64frombits(binary.LittleEndian.Uint64(token)), 'f', -1, 64)
	if err := os.WriteFile(t.badFile(), []byte(text), 0o644); err != nil {
		return err
	}
	return t.keepsWell(ctx, 20, t.SLO)
}

// cutModel deploys a model of 192 MiB of weights with less memory than that, so that it is cut.
func cutModel(ctx context.Context, t *trial) error {
	const name, width, products = "cut", 4096, 3
	nodes := `node { op_type: "Expand" input: "x" input: "shape" output: "r0" }
initializer { name: "shape" data_type: 7 dims: 2 int64_data: 1 int64_data: 4096 }`
	for i := range products {
		nodes += fmt.Sprintf(` node { op_type: "MatMul" input: "r%d" input: "w%d" output: "p%d" } node { op_type: "Relu" input: "p%d" output: "r%d" }`, i, i, i, i, i+1)
	}
	nodes += ` node { op_type: "ReduceMax" input: "r3" output: "y" attribute { name: "axes" type: INTS ints: 1 } }`
	p, err := graphOf(nodes)
	if err != nil {
		return err
	}
	for i := range products {
		p.Graph.Initializer = append(p.Graph.Initializer, &onnxpb.TensorProto{
			Name: proto.String(fmt.Sprint("w", i)), DataType: proto.Int32(1), Dims: []int64{width, width}, RawData: make([]byte, 4*width*width),
		})
	}
	file, err := proto.Marshal(p)
	if err != nil {
		return err
	}
	image, err := t.hostile(name, file)
	if err != nil {
		return err
	}
	body := []byte(`{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[1]}]}`)
	f := &function{
		name: name, header: http.Header{"Content-Type": {"application/json"}},
		body: func(int) []byte { return body }, want: func(int) Hash { return 0 },
		hash: func(answer []byte) Hash {
			if bytes.Contains(answer, []byte(`"data":[0]`)) {
				return 0
			}
			return hashOf(answer)
		},
		deployment: rig.Function(name, image, map[string]string{
			"com.openfaas.slo.latency": cutSLO.String(), "com.openfaas.infer.partition": "auto", "com.openfaas.infer.max-batch": "1",
		}),
	}
	f.deployment.Labels = &map[string]string{"com.openfaas.scale.min": "1"}
	f.deployment.Limits = &types.FunctionResources{Memory: "176Mi"}
	t.own = f
	if err := t.guest(ctx, f); err != nil {
		return err
	}
	_, err = t.world.answerOf(f, time.Minute)(ctx, body)
	return err
}

// cutSLO is the objective of the model that is cut.
const cutSLO = time.Second

func workerStopped(ctx context.Context, t *trial) error {
	its, err := t.instancesOf()
	if err != nil {
		return err
	}
	for _, r := range its {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.Process.PID))
		if err != nil {
			return err
		}
		arguments := strings.Split(string(line), "\x00")
		if at := slices.Index(arguments, "--part"); at >= 0 && at+1 < len(arguments) && arguments[at+1] != "0" {
			if err := t.world.signalAll(r, syscall.SIGSTOP); err != nil {
				return err
			}
			return t.keepsWell(ctx, 5, cutSLO)
		}
	}
	return fmt.Errorf("%w: the model is not cut", errNotHere)
}

// frozen freezes an instance: with cgroups of version 1 not even SIGKILL ends it then, like a process
// that waits for a disk that is gone.
func frozen(ctx context.Context, t *trial) error {
	r, err := t.pick(t.repeat)
	if err != nil {
		return err
	}
	group := filepath.Join(cgroupMount, "freezer", fmt.Sprintf("faas-infer-bench-%d", os.Getpid()))
	_ = os.Remove(group) // An earlier bench with this pid may have left it; one with processes stays.
	if err := os.Mkdir(group, 0o755); err != nil {
		return fmt.Errorf("%w: only cgroups of version 1 freeze what cannot be killed then: %w", errNotHere, err)
	}
	t.after(func(ctx context.Context) error {
		if err := thaw(group); err != nil {
			return err
		}
		return removeSoon(ctx, group)
	})
	// Nobody else could thaw it if this process died.
	if err := os.WriteFile(filepath.Join(t.world.dir, frozenFile), []byte(group), 0o600); err != nil {
		return err
	}
	all, err := processes()
	if err != nil {
		return err
	}
	its := append(descendants(all, r.Process.PID), r.Process.PID)
	for pid := range all { // One that was forked from a warm process is no descendant.
		if within(map[string]bool{string(r.Spec.ID): true}, pid) && !slices.Contains(its, pid) {
			its = append(its, pid)
		}
	}
	for _, pid := range its {
		err := os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, pid), 0)
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("%w: %w", errNotHere, err)
		}
	}
	if err := os.WriteFile(filepath.Join(group, freezerState), []byte("FROZEN"), 0); err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	if err := rig.Pause(ctx, t.fault.lasts); err != nil {
		return err
	}
	alive := syscall.Kill(r.Process.PID, 0) == nil
	t.say("it could not be killed: %t", alive)
	// What has had SIGKILL ends now.
	return t.undo(ctx)
}

const (
	// frozenFile, in the bench's directory, names the cgroup whose processes are frozen.
	frozenFile = "frozen"
	// freezerState is the file of a cgroup that freezes and thaws.
	freezerState = "freezer.state"
)

// thaw lets a cgroup's processes go on.
func thaw(group string) error {
	return os.WriteFile(filepath.Join(group, freezerState), []byte("THAWED"), 0)
}

// hiccupProgram is slow in every 20th execution, whatever its share of the machine.
const hiccupProgram = `import random
import time

inputs = {"x": ("float64", [1])}
outputs = {"y": ("float64", [1])}
chance = random.Random()


def handle(batch):
    if chance.random() < 0.05:
        time.sleep(%v)
    return [{"y": request["x"] + 1} for request in batch]
`

// hiccupModel deploys a handler whose slow executions take more than the objective.
func hiccupModel(ctx context.Context, t *trial) error {
	return t.ownAdder(ctx, "hiccups", fmt.Sprintf(hiccupProgram, 1.2*t.SLO.Seconds()), map[string]string{"com.openfaas.scale.min": "1"})
}

// hiccups loads it, and looks at the CPU that it has at the end.
func hiccups(ctx context.Context, t *trial) error {
	millicores := func() (sum int) {
		its, err := t.instancesOf()
		if err != nil {
			return 0
		}
		for _, r := range its {
			sum += r.Spec.Config.CPU
		}
		return sum
	}
	watching, cancel := context.WithCancel(ctx)
	ended := make(chan []int, 1)
	go func() {
		var seen []int
		for rig.Pause(watching, 250*time.Millisecond) == nil {
			seen = append(seen, millicores())
		}
		ended <- seen
	}()
	_, err := t.burst(ctx, t.world.now().URL, t.own, 20, t.fault.lasts, t.SLO, t.SLO+beyond)
	cancel()
	seen := <-ended
	if err != nil || len(seen) == 0 {
		return errors.Join(errors.New("nobody looked at its CPU"), err)
	}
	// Before the first raise, and in the last quarter.
	first := slices.Max(seen[:max(1, len(seen)/10)])
	last := slices.Max(seen[len(seen)*3/4:])
	t.say("it has %dm at first, %dm at most, and at most %dm in the last quarter", first, slices.Max(seen), last)
	t.must(last <= 2*first, "%dm of %dm", last, first)
	return nil
}

// parkedModel moves the provider to a small disk, and deploys the model once more and leaves it alone
// until it is parked.
func parkedModel(ctx context.Context, t *trial) error {
	if err := smallDisk(ctx, t); err != nil {
		return err
	}
	const name = "parked"
	f := *t.functions[0]
	f.name = name
	f.deployment = rig.Function(name, modelName+":latest", *f.deployment.Annotations)
	t.own = &f
	if err := t.guest(ctx, &f); err != nil {
		return err
	}
	if _, err := t.world.answerOf(&f, wellWithin)(ctx, f.body(0)); err != nil {
		return err
	}
	for deadline := time.Now().Add(wellWithin); ; {
		n, err := t.world.now().FunctionMetric(ctx, "parked_instances", name)
		if err != nil || n > 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not parked after %v", name, wellWithin)
		}
		if err := rig.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// parked asks a parked model while the disk is full.
func parked(ctx context.Context, t *trial) error {
	before, err := t.instancesOf()
	if err != nil || len(before) == 0 {
		return errors.Join(errors.New("there is no instance"), err)
	}
	full := make(chan error, 1)
	go func() { full <- diskFull(ctx, t) }()
	err = rig.Pause(ctx, t.fault.lasts/4)
	var asked int
	for end := time.Now().Add(t.fault.lasts / 2); err == nil && time.Now().Before(end); asked++ {
		status, answer, failed := t.world.ask(ctx, t.own, t.own.body(asked))
		t.must(failed == nil && status == http.StatusOK && t.own.hash(answer) == t.own.want(asked), "request %d is answered %d: %.100s %v", asked, status, printable(answer), failed)
		err = rig.Pause(ctx, 100*time.Millisecond)
	}
	for _, r := range before {
		t.must(syscall.Kill(r.Process.PID, 0) == nil, "a healthy instance has ended")
	}
	t.say("%d requests to %d parked instances", asked, len(before))
	return errors.Join(err, <-full)
}

// narrow deploys a program that takes one request at a time, and takes its instances.
func narrow(ctx context.Context, t *trial) error {
	const name = "narrow"
	t.own = &function{name: name, deployment: types.FunctionDeployment{
		Service: name, Image: "functions/alpine:latest", EnvProcess: `sh -c "sleep 0.02; exec cat"`, EnvVars: map[string]string{"max_inflight": "1"},
	}}
	if err := t.guest(ctx, t.own); err != nil {
		return err
	}
	if err := t.world.now().Available(ctx, name, 1); err != nil {
		return err
	}
	return t.toZero(ctx)
}

// toZero takes the instances of the fault's own function.
func (t *trial) toZero(ctx context.Context) error {
	d := t.world.now()
	if err := d.Scale(ctx, t.own.name, 0); err != nil {
		return err
	}
	return d.Available(ctx, t.own.name, 0)
}

// narrowBurst sends eight requests at once, again and again to none.
func narrowBurst(ctx context.Context, t *trial) error {
	end := time.Now().Add(t.fault.lasts)
	codes := map[int]int{}
	for round := 0; time.Now().Before(end); round++ {
		if round > 0 {
			if err := t.toZero(ctx); err != nil {
				return err
			}
		}
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				body := fmt.Append(nil, i)
				status, answer, err := post(ctx, http.DefaultClient, t.world.now().URL+"/function/"+t.own.name, nil, body)
				t.must(err == nil && (status != http.StatusOK || bytes.Equal(answer, body)), "request %d is answered %d: %.100s %v", i, status, printable(answer), err)
				mu.Lock()
				defer mu.Unlock()
				codes[status]++
			})
		}
		all.Wait()
	}
	t.say("statuses: %v", codes)
	t.must(codes[http.StatusTooManyRequests] == 0, "%d of them are 429", codes[http.StatusTooManyRequests])
	return nil
}
