package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// A deployment's declaration of images reaches the instance unchanged.
func TestImagesReachTheInstance(t *testing.T) {
	var f ProviderFlags
	spec := cluster.InstanceSpec{Function: "photos.openfaas-fn", Artefact: cluster.Artefact{Images: "224x224 fit=crop"}}
	argv := f.InstanceArguments(spec)
	at := slices.Index(argv, "--image")
	if at < 0 || at+1 >= len(argv) || argv[at+1] != spec.Images {
		t.Fatalf("the instance is started with %q", argv)
	}
	got := instanceFlags{image: argv[at+1]}
	if form, err := got.images(); err != nil || form.Width != 224 || form.Fit != "crop" {
		t.Errorf("it reads %+v, %v", form, err)
	}
	spec.Images = ""
	if slices.Contains(f.InstanceArguments(spec), "--image") {
		t.Error("a function without images is told of some")
	}
}

func TestInstanceRefusesWhatIsNoImageForm(t *testing.T) {
	c := NewInstanceCommand()
	c.SetArgs([]string{"--model", "mnist.onnx", "--image", "28"})
	c.SilenceErrors, c.SilenceUsage = true, true
	if err := c.Execute(); err == nil || !strings.Contains(err.Error(), `--image is "28": it must begin with the width and height`) {
		t.Errorf("got %v", err)
	}
}
