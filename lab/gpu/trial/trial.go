// Package trial tries the local backend's GPUs on a machine that has one: inventory, MPS daemons that
// are started, adopted and restarted, instances' environments, and whole GPUs. Its instances compute
// multiply-adds and report how many multiprocessors they may use. It measures no model. Begin with
// [Run].
package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local"
	"github.com/faas-infer/faas-infer/cluster/local/gpus"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/gpu"
)

// Options are the options of the trial.
type Options struct {
	// Instance is the command of an instance, which calls [Serve].
	Instance []string
	// Library is the driver's NVML library.
	Library nvml.Interface
	// Device is the index or UUID of the GPU, MPS the MPS control program.
	Device, MPS string
	// Log gets a message for each step.
	Log io.Writer
}

// wait is how long an instance may take to start or to exit.
const wait = 20 * time.Second

// trial is the state of one run.
type trial struct {
	Options
	dir     string
	backend *local.Backend
	report  *report.Report
	// sms is the number of multiprocessors of the GPU, uuid its name.
	sms    int
	uuid   string
	failed []error
}

// Run tries all and returns what it measured. Its error names every step that went wrong; the report
// is valid nevertheless. The error wraps [gpu.ErrNone] if there is no GPU.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	dir, err := os.MkdirTemp("", "fi-gpu-") // Short, for the paths of sockets.
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	t := &trial{Options: o, dir: dir, report: report.New("bench gpu-trial", time.Now())}
	if err := t.open(ctx, o.MPS, "open"); err != nil {
		return nil, err
	}
	i := t.backend.GPUs().Inventory()
	if len(i.Devices) == 0 {
		return nil, errors.Join(fmt.Errorf("%w of the name %s", gpu.ErrNone, o.Device), t.backend.Close())
	}
	d := i.Devices[0]
	t.sms, t.uuid = d.SMs, d.UUID
	t.log("%s, %d multiprocessors, %d MiB, driver %s, CUDA %s, shared: %v %s", d.Model, d.SMs, d.Memory>>20, i.Driver, i.CUDA, !d.Whole, d.Unshareable)
	t.report.Add("sms", float64(d.SMs), "", d.Model)
	t.check("a daemon serves the GPU", !d.Whole, d.Unshareable)
	if !d.Whole {
		t.shares(ctx)
		t.adoption(ctx)
		t.restart(ctx)
		t.end("end")
		t.nothingLeft()
		if err := t.open(ctx, filepath.Join(dir, "missing"), "open_without_mps"); err != nil {
			return t.report, err
		}
	}
	t.whole(ctx)
	t.end("end_without_mps")
	t.report.Add("failed_checks", float64(len(t.failed)), "", "")
	return t.report, errors.Join(t.failed...)
}

func (t *trial) log(format string, args ...any) { fmt.Fprintf(t.Log, format+"\n", args...) }

// check notes whether something is as it must be.
func (t *trial) check(what string, ok bool, otherwise any) {
	if ok {
		t.log("ok: %s", what)
		return
	}
	t.failed = append(t.failed, fmt.Errorf("not so: %s: %v", what, otherwise))
	t.log("NOT SO: %s: %v", what, otherwise)
}

// open opens the backend and measures that.
func (t *trial) open(ctx context.Context, mps, name string) (err error) {
	began := time.Now()
	t.backend, err = local.New(ctx, local.Options{
		Dir: filepath.Join(t.dir, "l"), NodeName: "here", Logger: zerolog.New(t.Log).Level(zerolog.WarnLevel), NoCgroups: true,
		Total:   &cluster.Resources{CPU: 64000, Memory: 1 << 40},
		Command: func(cluster.InstanceSpec, string) (argv, env []string) { return t.Instance, nil },
		GPUs:    gpus.Options{Library: t.Library, Names: []string{t.Device}, MPS: mps, Every: time.Second},
	})
	t.report.Add(name+"_ms", ms(began), "ms", "inventory and daemon")
	return err
}

func ms(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

// start starts an instance and returns how many multiprocessors it may use.
func (t *trial) start(ctx context.Context, s cluster.InstanceSpec) (cluster.Instance, int) {
	began := time.Now()
	s.Function, s.Node, s.Config.Batch, s.Config.CPU = "trial.fn", "here", 1, 1000
	in, err := t.backend.Start(ctx, s)
	if err != nil {
		t.check(fmt.Sprintf("%s starts", s.ID), false, err)
		return in, 0
	}
	if last, ok := t.event(s.ID, cluster.Ready); !ok {
		t.check(fmt.Sprintf("%s is ready", s.ID), false, last.Reason)
		return in, 0
	}
	t.report.Add(string(s.ID)+".ready_ms", ms(began), "ms", "with CUDA's context")
	sms := 0
	line := t.backend.Logs().Cause("trial.fn", string(s.ID), 0)
	if _, err := fmt.Sscanf(line, "sms %d", &sms); err != nil {
		t.check(fmt.Sprintf("%s says what it may use", s.ID), false, line)
	}
	t.report.Add(string(s.ID)+".sms", float64(sms), "", "that it may use")
	return in, sms
}

// event waits for an instance's next state.
func (t *trial) event(id cluster.InstanceID, state cluster.State) (cluster.Instance, bool) {
	timeout := time.After(wait)
	for {
		select {
		case in := <-t.backend.Events():
			if in.ID == id && (in.State == state || in.State == cluster.Exited) {
				return in, in.State == state
			}
		case <-timeout:
			return cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: id}, Reason: fmt.Sprintf("it is not %s after %v", state, wait)}, false
		}
	}
}

// share is an instance of a model.
func share(id string, percent int, memory int64) cluster.InstanceSpec {
	return cluster.InstanceSpec{ID: cluster.InstanceID(id), Config: cluster.Config{Resources: cluster.Resources{GPU: percent, GPUMemory: memory}}}
}

// near reports whether a process's multiprocessors are its share of the GPU's. MPS rounds to pairs or
// larger groups.
func (t *trial) near(sms, percent int) bool {
	want := t.sms * percent / 100
	return sms > 0 && sms >= want-8 && sms <= want+8
}

// shares starts instances with 30 and 60 %.
func (t *trial) shares(ctx context.Context) {
	for _, percent := range []int{30, 60} {
		in, sms := t.start(ctx, share(fmt.Sprintf("share-%d", percent), percent, 4<<30))
		t.check(fmt.Sprintf("an instance with %d %% has its part of %d multiprocessors on %s", percent, t.sms, t.uuid), t.near(sms, percent) && in.Device() == t.uuid, fmt.Sprintf("%d on %s", sms, in.Device()))
	}
	_, err := t.backend.Start(ctx, cluster.InstanceSpec{ID: "too-much", Function: "trial.fn", Node: "here", Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, GPU: 20}}})
	t.check("20 % more have no room", errors.Is(err, local.ErrNoCapacity), err)
	if nodes, err := t.backend.Nodes(ctx); err == nil && len(nodes) == 1 {
		t.report.Add("free_percent", float64(nodes[0].Free.GPU), "%", "")
		t.check("10 % are free", nodes[0].Free.GPU == 10, nodes[0])
	}
}

// adoption closes the backend as a provider that ends, and opens it again.
func (t *trial) adoption(ctx context.Context) {
	was, err := t.backend.GPUs().Daemon(t.uuid)
	err = errors.Join(err, t.backend.Close())
	t.check("the backend closes", err == nil, err)
	if err := t.open(ctx, t.Options.MPS, "adopt"); err != nil {
		t.check("the backend opens again", false, err)
		return
	}
	is, err := t.backend.GPUs().Daemon(t.uuid)
	t.check(fmt.Sprintf("the daemon %d is adopted", was), err == nil && is == was, is)
	instances, err := t.backend.Instances(ctx)
	t.check("both instances are taken over", err == nil && len(instances) == 2 && instances[0].State == cluster.Ready, fmt.Sprintf("%v, %v", instances, err))
}

// restart kills the daemon.
func (t *trial) restart(ctx context.Context) {
	t.log("processes of MPS: %s", t.processes())
	pid, err := t.backend.GPUs().Daemon(t.uuid)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	t.check("the daemon is killed", err == nil, err)
	began := time.Now()
	for n := range 2 {
		select {
		case in := <-t.backend.Events():
			t.log("%s is %s: %s", in.ID, in.State, in.Reason)
			t.check("an instance exits and names the daemon", in.State == cluster.Exited && strings.Contains(in.Reason, "MPS daemon"), in.Reason)
		case <-time.After(wait):
			t.check(fmt.Sprintf("instance %d exits", n), false, "it stays")
		}
	}
	t.report.Add("instances_exited_ms", ms(began), "ms", "after the daemon's death")
	for deadline := time.Now().Add(wait); t.backend.GPUs().Inventory().Devices[0].Lost != "" && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	t.report.Add("restarted_ms", ms(began), "ms", "after the daemon's death")
	again, err := t.backend.GPUs().Daemon(t.uuid)
	t.check("another daemon serves", err == nil && again != pid && t.backend.GPUs().Inventory().Devices[0].Lost == "", t.backend.GPUs().Inventory().Devices[0].Lost)
	_, sms := t.start(ctx, share("again-50", 50, 0))
	t.check("an instance with 50 % works with it", t.near(sms, 50), sms)
	t.log("processes of MPS: %s", t.processes())
}

// whole gives out the GPU whole, to a model and to a process.
func (t *trial) whole(ctx context.Context) {
	if !t.backend.GPUs().Inventory().Devices[0].Whole {
		return
	}
	_, err := t.backend.Start(ctx, cluster.InstanceSpec{ID: "half", Function: "trial.fn", Node: "here", Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, GPU: 50}}})
	t.check("there is no half without MPS", errors.Is(err, local.ErrNoCapacity), err)
	in, sms := t.start(ctx, share("whole", 100, 0))
	t.check("an instance has the whole GPU", sms == t.sms, sms)
	if in.ID != "" {
		t.stop(in.ID)
	}
}

func (t *trial) stop(id cluster.InstanceID) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	began := time.Now()
	err := t.backend.Stop(ctx, id)
	t.report.Add(string(id)+".stop_ms", ms(began), "ms", "")
	t.check(fmt.Sprintf("%s stops", id), err == nil, err)
}

// end stops all instances and closes the backend.
func (t *trial) end(name string) {
	instances, _ := t.backend.Instances(context.Background())
	for _, in := range instances {
		t.stop(in.ID)
	}
	began := time.Now()
	err := t.backend.Close()
	t.report.Add(name+"_ms", ms(began), "ms", "daemon ended")
	t.check("the backend closes and ends its daemons", err == nil, err)
}

// processes lists the processes with the pipe directory of the trial's daemons.
func (t *trial) processes() string {
	var all []string
	entries, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range entries {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "CUDA_MPS_PIPE_DIRECTORY="+t.dir) {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "comm"))
		all = append(all, strings.TrimSpace(string(name))+" "+filepath.Base(filepath.Dir(file)))
	}
	return strings.Join(all, ", ")
}

func (t *trial) nothingLeft() {
	left := t.processes()
	t.check("no process of MPS is left", left == "", left)
}

// Serve is an instance of the trial: it computes on what it sees of a GPU until ctx ends. It prints the
// number of multiprocessors that it may use, and then says that it is ready.
func Serve(ctx context.Context, out io.Writer, ready func() error, sms int, run func() error) error {
	for range 3 {
		if err := run(); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "sms %d\n", sms)
	if err := ready(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := run(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
