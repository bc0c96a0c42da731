package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// coldWait is how long the provider lets a request wait for a first instance. The rest of
// beyond is for the way through the gateway, as with the provider's other bounds.
const coldWait = 650 * time.Millisecond

// beyond is by how much later than within its objective a request must be answered.
const beyond = time.Second

// world is a provider behind the stock gateway. A supervisor starts the provider again
// when it ends, as systemd would.
type world struct {
	o   rig.Options
	dir string
	// life ends with the bench: until then the supervisor starts the provider again.
	life context.Context
	// alone: this process has namespaces of its own.
	alone bool
	// place is where the provider keeps its state.
	place         string
	address, nats string
	proxy         *proxy
	gateway       string
	closeGateway  func()
	gatewayPID    int
	priority      *rig.Priority
	trees         map[string]bool

	mu       sync.Mutex
	provider *rig.Deployed
	stopping bool
	// ended counts how often the provider ended by itself or was killed.
	ended      int
	supervised sync.WaitGroup
}

// newWorld starts a provider and a gateway in a directory.
func newWorld(ctx context.Context, o rig.Options, dir string) (_ *world, err error) {
	w := &world{o: o, dir: dir, life: ctx, place: dir, alone: os.Getenv(aloneEnv) != "", closeGateway: func() {}, trees: map[string]bool{}}
	if w.priority, err = rig.TakePriority(); err != nil {
		return nil, err
	}
	w.o.Started = w.priority.Ordinary
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.address, err = engine.FreeAddress(); err != nil {
		return nil, err
	}
	if w.nats, err = engine.FreeAddress(); err != nil {
		return nil, err
	}
	if w.proxy, err = newProxy(w.nats); err != nil {
		return nil, err
	}
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	before, err := processes()
	if err != nil {
		return nil, err
	}
	url, closeGateway, err := o.Gateway(ctx, w.address, w.proxy.address(), dir)
	if err != nil {
		return nil, err
	}
	w.gateway, w.closeGateway = url, closeGateway
	after, err := processes()
	for pid, p := range after {
		if _, known := before[pid]; !known && p.parent == os.Getpid() {
			w.gatewayPID = pid
		}
	}
	return w, err
}

// start starts the provider, and its supervisor.
func (w *world) start(ctx context.Context) error {
	d, err := w.launch(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.provider, w.stopping = d, false
	w.mu.Unlock()
	w.supervised.Go(func() { w.supervise(w.life, d) })
	return nil
}

func (w *world) launch(ctx context.Context) (*rig.Deployed, error) {
	return w.o.ProviderAt(ctx, w.address, w.place, "--nats-listen", w.nats, "--cold-wait", coldWait.String(), "--max-held", strconv.Itoa(maxHeld))
}

// supervise starts the provider again whenever it ends, until it is to stop.
func (w *world) supervise(ctx context.Context, d *rig.Deployed) {
	for {
		<-d.Exited()
		w.mu.Lock()
		stopping := w.stopping
		if !stopping {
			w.ended++
		}
		w.mu.Unlock()
		for {
			if stopping || ctx.Err() != nil {
				return
			}
			next, err := w.launch(ctx)
			w.mu.Lock()
			if stopping = w.stopping; err == nil {
				w.provider, d = next, next
			}
			w.mu.Unlock()
			if err == nil {
				break
			}
			_ = rig.Pause(ctx, 100*time.Millisecond)
		}
		if stopping { // It came up while it was to stop.
			d.Stop()
			return
		}
	}
}

// now is the provider that there is now.
func (w *world) now() *rig.Deployed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.provider
}

func (w *world) ends() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// stop stops the provider, and kills what it leaves.
func (w *world) stop() error {
	w.mu.Lock()
	w.stopping = true
	d := w.provider
	w.mu.Unlock()
	if d != nil {
		d.Stop()
	}
	w.supervised.Wait()
	return process.KillAll(func() ([]int, error) {
		all, err := processes()
		if err != nil {
			return nil, err
		}
		below := descendants(all, os.Getppid())
		return slices.DeleteFunc(below, func(pid int) bool {
			// What is killed outside namespaces must descend from the keeper.
			return pid == os.Getpid() || pid == w.gatewayPID || all[pid].state == 'Z' || !Inside()
		}), nil
	}, 10*time.Second)
}

// restart stops the provider and all of its instances, and starts it again with its state
// below another directory.
func (w *world) restart(ctx context.Context, place string) error {
	if err := w.stop(); err != nil {
		return err
	}
	if place != w.place {
		if err := os.CopyFS(filepath.Join(place, "state"), os.DirFS(filepath.Join(w.place, "state"))); err != nil {
			return fmt.Errorf("move the provider's state: %w", err)
		}
		if err := os.RemoveAll(filepath.Join(w.place, "state")); err != nil {
			return fmt.Errorf("move the provider's state: %w", err)
		}
		w.place = place
	}
	return w.start(ctx)
}

func (w *world) close() {
	_ = w.stop()
	w.closeGateway()
	if w.proxy != nil {
		w.proxy.close()
	}
	if err := w.priority.GiveUp(); err != nil {
		fmt.Fprintln(w.o.Log, err)
	}
}

// records are the instances that the provider has written down. The cgroups that they are
// in are written down, too, for the one that cleans up.
func (w *world) records() ([]rig.InstanceRecord, error) {
	records, err := w.now().Records()
	if err != nil {
		return nil, err
	}
	known := len(w.trees)
	for _, r := range records {
		for _, controller := range []string{"cpu", "cpuacct", "cpuset", "memory"} {
			if dir, _, err := cgroupDir(r.Process.PID, controller); err == nil {
				if tree, ok := treeOf(dir); ok {
					w.trees[tree] = true
				}
			}
		}
	}
	if len(w.trees) > known {
		var list []string
		for tree := range w.trees {
			list = append(list, tree)
		}
		err = os.WriteFile(filepath.Join(w.dir, treesFile), []byte(strings.Join(list, "\n")), 0o600)
	}
	return records, err
}

// ask sends one request to a function by way of the gateway.
func (w *world) ask(ctx context.Context, f *function, body []byte) (status int, answer []byte, err error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: timeout}
	return post(ctx, &client, w.gateway+"/function/"+f.name, f.header, body)
}

// answerOf returns what asks a function until it answers well, for a time at most.
func (w *world) answerOf(f *function, limit time.Duration) func(ctx context.Context, body []byte) ([]byte, error) {
	return func(ctx context.Context, body []byte) ([]byte, error) {
		for deadline := time.Now().Add(limit); ; {
			status, answer, err := w.ask(ctx, f, body)
			if err == nil && status == http.StatusOK {
				return answer, nil
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if time.Now().After(deadline) {
				return nil, errors.Join(fmt.Errorf("%s answers %d after %v: %.300s", f.name, status, limit, answer), err)
			}
			if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
				return nil, err
			}
		}
	}
}

// enough is how many requests to each function in a row must be answered rightly and in
// time for the world to count as well.
const enough = 8

// awaitWell returns once all functions answer rightly and within the objective.
func (w *world) awaitWell(ctx context.Context, functions []*function, slo, limit time.Duration) error {
	var last error
	for deadline := time.Now().Add(limit); ; {
		well := 0
		for ; well < enough*len(functions); well++ {
			f := functions[well%len(functions)]
			began := time.Now()
			status, answer, err := w.ask(ctx, f, f.body(well))
			took := time.Since(began)
			if err != nil || status != http.StatusOK || took > slo || f.hash(answer) != f.want(well) {
				last = errors.Join(fmt.Errorf("%s answers %d after %v: %.200s", f.name, status, took.Round(time.Millisecond), printable(answer)), err)
				break
			}
		}
		switch {
		case well == enough*len(functions):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("the functions are not well after %v: %w", limit, last)
		}
		if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// printable is an answer for an error's text.
func printable(answer []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, string(answer))
}

// signalAll sends a signal to an instance's processes.
func (w *world) signalAll(r rig.InstanceRecord, signal syscall.Signal) error {
	all, err := processes()
	if err != nil {
		return err
	}
	for _, pid := range append(descendants(all, r.Process.PID), r.Process.PID) {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal process %d: %w", pid, err)
		}
	}
	return nil
}
