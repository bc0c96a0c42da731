package bench

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/kubelet"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// scanPause is the time between two searches of /proc for the processes of pods.
const scanPause = 20 * time.Millisecond

// RunRolloutOnKubernetes deploys later revisions of a function to pods under load, one after the other, in the
// namespaces of node.Run and with what kubelet.Prepare has built.
func RunRolloutOnKubernetes(ctx context.Context, log io.Writer, b Rollout) (r *report.Report, err error) {
	c, err := kubelet.Start(ctx, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Show(context.WithoutCancel(ctx))
			c.KeepLogs()
		}
		err = errors.Join(err, c.Stop())
	}()
	if err := c.Install(ctx); err != nil {
		return nil, err
	}
	p := rolloutPlace{processes: kubelet.Processes, pause: scanPause, log: log, settled: func(ctx context.Context) error { return goneCandidate(ctx, c) }}
	if p.image, err = pushModel(ctx, c, rolloutImage, 1); err != nil {
		return nil, err
	}
	if p.other, err = pushModel(ctx, c, otherImage, otherSeed); err != nil {
		return nil, err
	}
	address, err := c.Address(ctx)
	if err != nil {
		return nil, err
	}
	p.provider = &rig.Deployed{URL: "http://" + kubelet.User + ":" + kubelet.Password + "@" + address}
	s, err := rig.NewSubject("mnist")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if p.target, err = s.JSONTarget("http://" + address + "/function/" + rig.FunctionName); err != nil {
		return nil, err
	}
	return b.run(ctx, p)
}

// goneCandidate waits until no pod is about to go: a node that is as small as this one may have no room beside them.
func goneCandidate(ctx context.Context, c *kubelet.Cluster) error {
	for {
		out, err := c.Kubectl(ctx, "", "get", "pods", "-n", "openfaas-fn", "-o", "jsonpath={.items[*].metadata.deletionTimestamp}")
		if err != nil || strings.TrimSpace(out) == "" {
			return err
		}
		if err := rig.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// pushModel pushes an image of the model mnist with weights of a seed, and returns its name.
func pushModel(ctx context.Context, c *kubelet.Cluster, image string, seed int) (string, error) {
	file, name := c.File(image+".onnx"), c.RegistryHost()+"/functions/"+image
	command := []string{c.Program, "model", "make", "mnist", "--seed", strconv.Itoa(seed), "--out", file}
	if _, err := kubelet.Run(ctx, command...); err != nil {
		return "", err
	}
	_, err := kubelet.Run(ctx, c.Kubernetes, "image", "function", file, "--base", c.Base(), "--push", name)
	return name, err
}
