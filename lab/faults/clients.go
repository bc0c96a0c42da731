package faults

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// strange opens connections to an address, one after a pause after the other, writes a
// request on each and has it used by use, and closes all when the fault is over. Such clients
// are owed no answer.
func strange(ctx context.Context, t *trial, address string, clients int, gap time.Duration, request func(i int) string, use func(ctx context.Context, c net.Conn)) error {
	ctx, cancel := context.WithTimeout(ctx, t.fault.lasts)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	refused := 0
	for i := range clients {
		_ = rig.Pause(ctx, gap) // If the fault is over, there is no connection either.
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			refused++
			continue
		}
		stop := context.AfterFunc(ctx, func() { c.Close() })
		all.Go(func() {
			defer stop()
			defer c.Close()
			if _, err := c.Write([]byte(request(i))); err == nil {
				use(ctx, c)
			}
		})
	}
	if refused > 0 {
		t.say("%d of %d found no connection", refused, clients)
	}
	<-ctx.Done()
	if parent := context.Cause(ctx); parent == context.Canceled {
		return parent
	}
	return nil
}

// gatewayAddress is where the gateway listens.
func (t *trial) gatewayAddress() string { return strings.TrimPrefix(t.world.gateway, "http://") }

// head is a request's to a function, up to its body.
func (t *trial) head(f *function, length int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "POST /function/%s HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n", f.name, length)
	_ = f.header.Write(&b)
	return b.String() + "\r\n"
}

func idleSockets(ctx context.Context, t *trial) error {
	head := func(i int) string { return t.head(t.functions[i%len(t.functions)], 32<<20) }
	return strange(ctx, t, t.gatewayAddress(), 1000, 0, head, func(ctx context.Context, _ net.Conn) { <-ctx.Done() })
}

func slowSenders(ctx context.Context, t *trial) error {
	head := func(i int) string { return t.head(t.functions[i%len(t.functions)], 1<<20) }
	return strange(ctx, t, t.gatewayAddress(), 200, 0, head, func(ctx context.Context, c net.Conn) {
		for piece := make([]byte, 1<<10); rig.Pause(ctx, time.Second) == nil; {
			if _, err := c.Write(piece); err != nil {
				return
			}
		}
	})
}

// patientFunction deploys the ordinary function once more, without a limit of time.
func patientFunction(ctx context.Context, t *trial) error {
	const name = "patient"
	f := *t.functions[len(t.functions)-1]
	f.name, f.deployment.Service, f.deployment.EnvVars = name, name, nil
	t.own = &f
	if err := t.guest(ctx, &f); err != nil {
		return err
	}
	return t.world.now().Available(ctx, name, 1)
}

func slowReaders(ctx context.Context, t *trial) error {
	both := []*function{t.functions[len(t.functions)-1], t.own}
	const size = 2 << 20
	request := func(i int) string { return t.head(both[i%2], size) + strings.Repeat("x", size) }
	// All at once they would measure how fast this process sends 200 MiB.
	return strange(ctx, t, t.gatewayAddress(), 100, 20*time.Millisecond, request, func(ctx context.Context, c net.Conn) {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(4 << 10)
		}
		for piece := make([]byte, 1<<10); rig.Pause(ctx, time.Second) == nil; {
			if _, err := c.Read(piece); err != nil {
				return
			}
		}
	})
}

// guest is a function of the fault's own.
func (t *trial) guest(ctx context.Context, f *function) error {
	t.restored(func(ctx context.Context) error { return t.world.now().Remove(ctx, f.name) })
	return t.world.now().DeployFunction(ctx, f.deployment)
}

// burst sends a guest requests, at a gateway or provider, at a rate for a time; they must
// be answered within bound. id is their source.
func (t *trial) burst(ctx context.Context, at string, f *function, rate float64, d, slo, bound time.Duration) (id int, err error) {
	target := load.Target{URL: at + "/function/" + f.name, Rate: rate, Arrivals: load.Uniform}
	id = t.recorder.add(source{function: f, guest: true, step: 1, slo: slo, bound: bound}, &target)
	_, err = t.recorder.drive(ctx, id, []load.Target{target}, d, t.Seed)
	return id, err
}

const coldName = "cold"

// coldFunction deploys the model once more, has it answer once and takes its instances.
func coldFunction(ctx context.Context, t *trial) error {
	f := *t.functions[0]
	f.name = coldName
	f.deployment = rig.Function(coldName, modelName+":latest", *f.deployment.Annotations)
	if err := t.guest(ctx, &f); err != nil {
		return err
	}
	if err := t.world.awaitWell(ctx, []*function{&f}, t.SLO, wellWithin); err != nil {
		return err
	}
	d := t.world.now()
	if err := d.Scale(ctx, coldName, 0); err != nil {
		return err
	}
	t.own = &f
	return d.Available(ctx, coldName, 0)
}

func coldBurst(ctx context.Context, t *trial) error {
	// The gateway would take much longer than the provider to take them in.
	_, err := t.burst(ctx, t.world.now().URL, t.own, 5000, 2*time.Second, t.SLO, t.SLO+beyond)
	return err
}

// forkScript forks until it is refused, and stays for a while.
const forkScript = `(i=0; while [ $i -lt 3000 ]; do sleep 20 & i=$((i+1)); done) 2>/dev/null
exec sleep 3
`

// forker deploys an ordinary function that runs what it is sent.
func forker(ctx context.Context, t *trial) error {
	const name = "forker"
	t.own = &function{
		name: name, deployment: types.FunctionDeployment{Service: name, Image: "functions/alpine:latest", EnvProcess: "sh"},
		body: func(int) []byte { return []byte(forkScript) }, want: func(int) Hash { return hashOf(nil) }, hash: hashOf,
	}
	if err := t.guest(ctx, t.own); err != nil {
		return err
	}
	return t.world.now().Available(ctx, name, 1)
}

func forks(ctx context.Context, t *trial) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	highest := make(chan int, 1)
	go func() {
		most := 0
		for rig.Pause(ctx, 100*time.Millisecond) == nil {
			if all, err := processes(); err == nil {
				most = max(most, len(all))
			}
		}
		highest <- most
	}()
	// What it does takes some seconds, and so its answer has no bound but the time until
	// it counts as lost.
	_, err := t.burst(ctx, t.world.gateway, t.own, 0.5, t.fault.lasts, timeout, timeout)
	cancel()
	t.say("at most %d processes at once", <-highest)
	return err
}

// hungryProgram takes 64 MiB with each batch of requests that say so.
const hungryProgram = `import numpy as np

inputs = {"x": ("float64", [1])}
outputs = {"y": ("float64", [1])}
held = []


def handle(batch):
    if batch[0]["x"][0, 0] >= 1000:
        held.append(np.ones(64 << 20, dtype="uint8"))
    return [{"y": request["x"] + 1} for request in batch]
`

// hungryModel deploys a model that takes more and more memory.
func hungryModel(ctx context.Context, t *trial) error {
	const name, limit = "hungry", "256Mi"
	if err := pythonBundle(t.world.now(), t.world.dir, name, hungryProgram); err != nil {
		return err
	}
	plain, f := adder(), adder()
	f.name = name
	f.body = func(n int) []byte { return plain.body(1000 + n) }
	f.want = func(n int) Hash { return plain.want(1000 + n) }
	f.deployment = rig.Function(name, name+":latest", map[string]string{"com.openfaas.slo.latency": t.SLO.String()})
	f.deployment.Limits = &types.FunctionResources{Memory: limit}
	t.own = f
	if err := t.guest(ctx, f); err != nil {
		return err
	}
	// Its first answer comes once it has been measured.
	_, err := t.world.answerOf(f, wellWithin)(ctx, plain.body(0))
	return err
}

func modelMemory(ctx context.Context, t *trial) error {
	_, err := t.burst(ctx, t.world.gateway, t.own, 10, t.fault.lasts, t.SLO, t.SLO+beyond)
	return err
}
