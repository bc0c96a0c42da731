package children

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// tryTime is the maximum time that a deployment waits for a model to be read and tried, its turn included:
// faas-cli waits for a minute. Only reading may take longer, because what it finds refuses the deployment. A
// model that takes longer is prepared in the background, and its function's description says what fails.
const tryTime = 10 * time.Second

// passing are parts of errors that are not the model's: they may be gone at the next try.
var passing = []string{
	onnxruntime.ErrNoLibrary.Error(), "no space left on device", "permission denied", "cannot allocate memory",
	"too many open files", "resource temporarily unavailable", "read-only file system", "disk quota exceeded",
}

// checking bounds the models that are tried at once for deployments.
var checking = make(chan struct{}, max(2, runtime.NumCPU()))

// try prepares a small model and returns an error if the engine cannot run it, or if one run takes
// far longer than the objective or more memory than a child may have. A failure now
// would be one whenever an instance starts, so the deployment is refused. A large model takes too
// long for that.
// within is [tryTime].
func (m sizedModels) try(ctx context.Context, file string, within time.Duration) error {
	info, err := os.Stat(file)
	if err != nil || info.Size() >= largeModel || engines.IsManifest(file) || bundle.IsCutting(file) {
		return nil
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case checking <- struct{}{}:
		defer func() { <-checking }()
	case <-ctx.Done():
		return caller.Err()
	}
	_, err = m.prepare(ctx, file)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	if !errors.Is(err, latency.ErrPermanent) && Passing(err) {
		return nil
	}
	return err
}

// Passing reports whether an error may be gone at the next try: the machine lacks something, and the model
// is not at fault.
func Passing(err error) bool {
	text := strings.ToLower(err.Error())
	return slices.ContainsFunc(passing, func(part string) bool { return strings.Contains(text, strings.ToLower(part)) })
}
