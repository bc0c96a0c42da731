package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/instances"
)

// A deployment's declaration of images reaches the instance unchanged.
func TestImagesReachTheInstance(t *testing.T) {
	var f ProviderFlags
	spec := cluster.InstanceSpec{Function: "photos.openfaas-fn", Artefact: cluster.Artefact{Images: "224x224 fit=crop"}}
	argv := f.InstanceArguments(spec, "unix:///s")
	at := slices.Index(argv, "--image")
	if at < 0 || at+1 >= len(argv) || argv[at+1] != spec.Images {
		t.Fatalf("the instance is started with %q", argv)
	}
	got := instances.Flags{Image: argv[at+1]}
	if form, err := got.Images(); err != nil || form.Width != 224 || form.Fit != "crop" {
		t.Errorf("it reads %+v, %v", form, err)
	}
	spec.Images = ""
	if slices.Contains(f.InstanceArguments(spec, "unix:///s"), "--image") {
		t.Error("a function without images is told of some")
	}
}

// What instances map together is not memory that an engine may take for tensors.
func TestMappedWeightsAreNotTheEngines(t *testing.T) {
	var f ProviderFlags
	spec := cluster.InstanceSpec{Function: "resnet.openfaas-fn", Config: cluster.Config{Batch: 1, Resources: cluster.Resources{
		CPU: 1000, Memory: 300, Mapped: cluster.Mapping{File: "w", Bytes: 100},
	}}}
	if argv := strings.Join(f.InstanceArguments(spec, "unix:///s"), " "); !strings.Contains(argv, "--memory 200 ") {
		t.Errorf("it is started with %s", argv)
	}
}

func TestInstanceRefusesWhatIsNoImageForm(t *testing.T) {
	if _, err := execute(t, "instance", "--model", "mnist.onnx", "--image", "28"); err == nil || !strings.Contains(err.Error(), `--image is "28": it must begin with the width and height`) {
		t.Errorf("got %v", err)
	}
}
